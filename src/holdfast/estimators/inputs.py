"""Checks of the arguments of `fit`, made once, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from threadpoolctl import ThreadpoolController

from holdfast._core.allowed import Number, short
from holdfast._core.labels import check_columns, check_features
from holdfast._core.uncertainty import UncertaintySet
from holdfast._problems.labelled_rows import LabelledRows
from holdfast.features.rows import checked_weights

Array = NDArray[np.float64]

MANY_THREADS = 3e9
"""BLAS may use all its threads if a step has at least this many multiplications, about n_samples * n_features**2."""


def class_codes(y: Any, name: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted classes, at least two, and y as their indices."""
    two = _two_classes(y)
    if two is None or y.dtype.kind not in "biu":  # two whole numbers are classes, whatever they are
        check_classification_targets(y)
    classes, codes = two or np.unique(y, return_inverse=True)
    if len(classes) == 1:
        raise ValueError(
            f"{name}.fit: y contains one class only, {classes.tolist()[0]!r}. A classifier needs rows of two classes."
        )
    return classes, codes.astype(np.intp, copy=False)


def _two_classes(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
    """Return the sorted classes and codes if there are exactly two classes, else None; faster than a sort of y."""
    others = y[y != y[0]]
    if len(others) == 0 or np.any(others != others[0]):
        return None
    classes = np.sort(np.array([y[0], others[0]], dtype=y.dtype))
    return classes, y == classes[1]


def row_weights(
    sample_weight: Any, class_weight: Any, X: Any, codes: NDArray[np.intp], classes: NDArray[Any], name: str
) -> Array:
    """Return the weight of each row, float64: the product of its sample_weight and its class_weight."""
    return both_weights(sample_weight, class_weight, X, codes, classes, name)[0]


def both_weights(
    sample_weight: Any, class_weight: Any, X: Any, codes: NDArray[np.intp], classes: NDArray[Any], name: str
) -> tuple[Array, Array]:
    """Return the weights of the rows by sample_weight and class_weight, and those by sample_weight alone, float64."""
    counts = checked_weights(sample_weight, X, f"{name}.fit")
    totals = np.asarray(np.bincount(codes, counts, len(classes)), dtype=np.float64)
    if not np.all(np.isfinite(totals)):
        raise ValueError(f"{name}.fit: sample_weight sums to infinity. Scale it down.")
    if np.any(totals <= 0):
        what = (
            "is zero for every row"
            if not np.any(totals)
            else f"is zero for every row of class {classes.tolist()[np.argmin(totals)]!r}"
        )
        raise ValueError(f"{name}.fit: sample_weight {what}. Give some row of each class a positive weight.")
    return counts * _class_factors(class_weight, totals, classes, name)[codes], counts


def labelled_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    metadata: Mapping[str, Any],
    *,
    by_feature: Sequence[str] = (),
    check: Callable[..., Any] | None = None,
    **options: Any,
) -> LabelledRows:
    """Return the rows given to `fit`, with class codes and weights, after checking that all arguments agree.

    Parameters of the estimator that have one value per feature are named in `by_feature`. `check`, with `options`,
    validates X and y; None accepts finite numbers, dense or sparse.
    """
    name = type(estimator).__name__
    check_columns(X, {"sample_weight": sample_weight, **metadata})
    check_features(X, {parameter: getattr(estimator, parameter) for parameter in by_feature})
    X, y = (check or _finite)(estimator, X, y, call=f"{name}.fit", ensure_min_samples=2, **options)
    classes, codes = class_codes(y, name)
    class_weight = getattr(estimator, "class_weight", None)
    return LabelledRows(X, codes, *both_weights(sample_weight, class_weight, X, codes, classes, name), classes)


def _finite(estimator: Any, X: Any, y: Any, *, call: str, **options: Any) -> Any:
    return validate_data(estimator, X, y, **({"accept_sparse": "csr", "dtype": [np.float64, np.float32]} | options))


def known_codes(y: NDArray[Any], classes: NDArray[Any], name: str) -> NDArray[np.intp]:
    """Return y as indices into classes that were stated before."""
    check_classification_targets(y)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"{name}.partial_fit: y contains {unknown.tolist()!r}, but classes is {classes.tolist()!r}. "
            "Name all classes at the first call."
        )
    return np.searchsorted(classes, y)


def stated_classes(classes: Any, name: str) -> NDArray[Any]:
    """Return the sorted classes stated in the first call of `partial_fit`."""
    if classes is None:
        raise ValueError(
            f"{name}.partial_fit: classes must be passed on the first call. "
            "Name all classes, partial_fit(X, y, classes=[0, 1]): later rows may be of classes not seen yet."
        )
    try:
        found = np.unique(np.asarray(classes))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}.partial_fit(classes={short(classes):.80}): give a list of classes of one kind."
        ) from None
    if len(found) < 2:
        raise ValueError(f"{name}.partial_fit(classes={found.tolist()!r}): a classifier needs two classes at least.")
    return found


def part_weights(
    sample_weight: Any, class_weight: Any, X: Any, codes: NDArray[np.intp], classes: NDArray[Any], name: str
) -> Array:
    """Return the weight of each row of a part, which need not have rows of all classes."""
    weights = checked_weights(sample_weight, X, f"{name}.partial_fit")
    return weights * _class_factors(class_weight, np.ones(len(classes)), classes, name)[codes]


def _class_factors(class_weight: Any, totals: Array, classes: NDArray[Any], name: str) -> Array:
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        return totals.sum() / (len(classes) * totals)
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"{name}(class_weight={class_weight!r:.80}): give None, 'balanced', or a dict from class to weight."
        )
    unknown = set(class_weight) - set(classes.tolist())
    if unknown:
        raise ValueError(
            f"{name}(class_weight=...): no such class in y: {sorted(map(repr, unknown))}. Classes: {classes.tolist()}."
        )
    weights = [class_weight.get(label, 1.0) for label in classes.tolist()]
    if not all(weight in Number(strictly=True) for weight in weights):
        raise ValueError(f"{name}(class_weight={class_weight!r:.80}): weights must be positive numbers.")
    return np.array(weights, dtype=np.float64)


def seed_of(random_state: Any) -> int:
    """Return a seed for other generators, drawn from a user's `random_state`."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def refuse_exact_alone(levels: Sequence[float], name: str) -> None:
    """Raise if no level of the errors is above 0."""
    if not np.any(np.asarray(levels) > 0):
        raise ValueError(
            f"{name}(levels={levels!r}): exact rows alone have no use for errors. Add a level above 0, such as levels=(0, 1)."
        )


def shape_of(uncertainty: Any, default: Any) -> Any:
    """Return an uncertainty to be multiplied: `default` for None; a set without a stated size has size 1."""
    if uncertainty is None:
        return default
    return uncertainty.as_shape() if isinstance(uncertainty, UncertaintySet) else uncertainty


def number(value: Any, call: str, *, strictly: bool = False) -> float:
    """Return `value` as a float after checking its range; `call` is quoted in the error."""
    return Number(strictly=strictly).checked(value, call)


class _OneBlasThread(AbstractContextManager[None]):
    """A context in which BLAS runs on one thread; if fits in several threads overlap, the last to leave restores it."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.limit = _threads().limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


one_blas_thread = _OneBlasThread()
"""A context in which BLAS runs on one thread: on small matrices two are slower, on a busy machine many times slower."""


def blas_threads_for(work: float) -> AbstractContextManager[None]:
    """Return a context in which BLAS runs on one thread, unless `work` (multiplications per step, about) is large."""
    # starting threads costs more than a small product, and far more if other processes use the cores
    return nullcontext() if work >= MANY_THREADS else one_blas_thread
