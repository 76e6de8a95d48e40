"""Settings of the classifier for Gaussian noise that do not go together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._core.loss import Loss
from holdfast._core.row_sets import RowSets
from holdfast._problems.expected_risk import ExpectedRisk
from holdfast.solvers import SGD


class Refusals:
    """A classifier with a `link` and several solvers, some of which are known for some losses, noises and classes only."""

    link: str | None
    solver: Any
    _quoted: Callable[..., str]
    _risk: Callable[[], ExpectedRisk]

    @property
    def _is_stochastic(self) -> bool:
        return self.solver == SGD.name or isinstance(self.solver, SGD)

    def _check_softmax(self, n_classes: int, takes_steps: bool) -> None:
        """Raise where all classes at once are asked for together with what is known one class at a time."""
        if not self._risk().is_softmax(n_classes):
            return
        for name, is_asked in (("link", self.link is not None), ("solver", takes_steps)):
            if is_asked:
                raise ValueError(
                    f"{self._quoted('multiclass', name)}: moderated scores and stochastic steps (partial_fit) are known for "
                    f"one class against the rest. Of {n_classes} classes use multiclass='ovr'."
                )

    def _check_link(self, loss: Loss, bound: RowSets) -> None:
        """Raise where no descent through the link is known."""
        if not loss.is_proper:
            raise ValueError(
                f"{self._quoted('loss', 'link')}: a link makes probabilities of scores, and this loss models "
                "none. Use loss='logistic', or link=None."
            )
        if self._is_stochastic:
            raise ValueError(
                f"{self._quoted('solver', 'link')}: the descent starts from a certified solution, which "
                "stochastic steps do not give. Use solver=None, or link=None."
            )
        if not bound.is_smooth:
            raise ValueError(
                f"{self._quoted('noise', 'link')}: moderated losses may fall as noise grows, so the largest "
                "deviation is not the worst. State the covariance, with unknown=None, or use link=None."
            )
