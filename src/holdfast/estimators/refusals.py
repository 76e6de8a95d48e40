"""Checks of the classifier for Gaussian noise: parameters that contradict each other are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._core.loss import Loss
from holdfast._core.row_sets import RowSets
from holdfast.solvers import SGD


class Refusals:
    """A classifier with a `link` and several solvers, not all of which work with every loss, noise or class count."""

    link: str | None
    multiclass: str | None
    solver: Any
    _quoted: Callable[..., str]

    @property
    def _is_stochastic(self) -> bool:
        return self.solver == SGD.name or isinstance(self.solver, SGD)

    def _ways_apart(self, loss: Loss, takes_steps: bool) -> dict[str, bool]:
        """Return, by parameter, whether it prevents a joint fit of several classes with this loss."""
        known = loss.is_homogeneous
        return {
            "link": not known and self.link is not None,
            "solver": not known and takes_steps,
            "loss": not known and loss.jointly() is None,
        }

    def _way_of(self, loss: Loss, takes_steps: bool) -> str:
        """Return how more than two classes are fitted, "joint" or "ovr"."""
        if self.multiclass is not None:
            return self.multiclass
        return "ovr" if any(self._ways_apart(loss, takes_steps).values()) else "joint"

    def _check_classes(self, loss: Loss, n_classes: int, takes_steps: bool) -> None:
        """Raise if more than two classes are to be fitted in a way that is not available."""
        if n_classes == 2:
            return
        if self.multiclass == "ovr" and loss.is_homogeneous:
            raise ValueError(
                f"{self._quoted('loss', 'multiclass')}: this loss is added up over all pairs of classes. Use multiclass=None, "
                "or loss='logistic'."
            )
        apart = self._ways_apart(loss, takes_steps)
        for name in (name for name in apart if apart[name] and self.multiclass == "joint"):
            raise ValueError(
                f"{self._quoted('multiclass', name)}: a link, stochastic steps (partial_fit) and a loss without a "
                f"joint form (your own loss states it by `jointly`) fit each class against the rest. With {n_classes} "
                "classes use multiclass='ovr' or None."
            )

    def _check_link(self, loss: Loss, bound: RowSets) -> None:
        """Raise if there is no descent through the link for these parameters."""
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
