"""Classifiers that can also learn from rows in parts, by `partial_fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from holdfast._core.labels import check_columns, check_features
from holdfast._core.solution import Solution, Status
from holdfast._core.version import __version__
from holdfast._problems.labelled_rows import LabelledRows
from holdfast.estimators.inputs import known_codes, part_weights, stated_classes
from holdfast.estimators.linear import LinearClassifier
from holdfast.solvers.selection import pick


def is_incremental(estimator: IncrementalClassifier) -> bool:
    """Return True if the estimator's settings allow `partial_fit`, else raise AttributeError with the reason."""
    name, steps = type(estimator).__name__, estimator._steps
    if not estimator._takes_streams:
        raise AttributeError(
            f"{name} has no partial_fit: cross-validation needs all rows at once. Use {name.removesuffix('CV')}."
        )
    if isinstance(estimator.class_weight, str):
        raise AttributeError(
            f"{name} has no partial_fit with class_weight={estimator.class_weight!r}: it does not know the weights of classes "
            "in rows to come. Give a dict from class to weight, or sample_weight."
        )
    if not (estimator.solver in (None, steps.name) or isinstance(estimator.solver, steps)):
        raise AttributeError(
            f"{name} has no partial_fit with solver={estimator.solver!r}: a batch solver needs all rows at once. "
            f"Give solver=None, {steps.name!r} or {steps.__name__}(...), or call fit."
        )
    return True


class IncrementalClassifier(LinearClassifier):
    """A linear classifier with a stochastic descent that each call of `partial_fit` continues."""

    _steps: ClassVar[Any]
    """The solver of `partial_fit`."""
    _stream: ClassVar[Any]
    """The class of that solver's state."""
    _takes_streams = True
    class_weight: Any
    stream_: list[dict[str, Any]]

    def _part(
        self,
        X: Any,
        y: Any,
        classes: Any,
        sample_weight: Any,
        metadata: Mapping[str, Any],
        flag: str,
        names: Sequence[str],
    ) -> LabelledRows:
        """Return the rows of a part, with the classes of all parts, after checking that they agree with earlier parts.

        `flag` names the attribute that records whether earlier parts came with metadata; `names` are the metadata that
        the call accepts.
        """
        name, going_on = type(self).__name__, hasattr(self, "stream_")
        stated_before = getattr(self, flag, None)
        if going_on and stated_before != bool(metadata):
            raise ValueError(
                f"{name}.partial_fit: earlier calls were {'with' if stated_before else 'without'} "
                f"{' or '.join(metadata or names)}. Give it in all calls or in none (zeros for exact rows)."
            )
        fresh = classes is not None or not hasattr(self, "classes_")
        known = stated_classes(classes, name) if fresh else self.classes_
        if going_on and not np.array_equal(known, self.classes_):
            raise ValueError(
                f"{name}.partial_fit(classes={known.tolist()!r}): earlier calls had {self.classes_.tolist()!r}. Leave it out."
            )
        check_columns(X, {"sample_weight": sample_weight, **metadata}, self if going_on else None)
        check_features(X, self.get_params(deep=False), self if going_on else None)
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "reset": not going_on}
        X, y = validate_data(self, X, y, **options)
        codes = known_codes(y, known, name)
        weights = part_weights(sample_weight, self.class_weight, X, codes, known, name)
        return LabelledRows(X, codes, weights, weights, known)

    def _advance(self, problems: Sequence[Any], classes: NDArray[Any]) -> None:
        """Take one pass over the rows of each problem, and set the fitted attributes, without a proof."""
        solver = self._steps() if self.solver in (None, self._steps.name) else self.solver
        pick(problems[0], solver)
        states = getattr(self, "stream_", None) or [asdict(self._stream.start(problem)) for problem in problems]
        streams = [self._stream(**state).advanced(p, solver) for state, p in zip(states, problems, strict=True)]
        self.classes_, self.stream_ = classes, [asdict(stream) for stream in streams]
        points = [stream.mean_point if solver.average else stream.point for stream in streams]
        coef, intercept = (np.concatenate(part) for part in zip(*points, strict=True))
        self._set_coefficients(coef, intercept, joint=len(problems) < len(coef))
        self.objective_, self.lower_bound_, self.gap_, self.norm_bound_ = np.nan, -np.inf, np.inf, np.inf
        self.collapsed_, self.n_iter_ = False, 1
        self.solution_ = Solution(coef.ravel(), Status.STREAMED, np.nan, 1, solver.name).summary()
        self.__dict__.pop("proof_weights_", None)
        self.holdfast_version_ = __version__
