"""Checking what a user hands to fit, once, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from numbers import Real
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]


def binary_signs(y: Any, name: str) -> tuple[NDArray[Any], Array]:
    """Return the two sorted classes and y as -1 and +1."""
    check_classification_targets(y)
    classes = _two_classes(y)
    if len(classes) == 1:
        raise ValueError(
            f"{name}.fit: y contains one class only, {classes[0]!r}. A classifier needs rows of two classes."
        )
    if len(classes) > 2:
        # the first sentence is the one scikit-learn's own checks look for
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(y)}. "
            f"y has {len(classes)} classes; wrap the estimator in sklearn.multiclass.OneVsRestClassifier "
            "(with X_std and the like: sklearn.set_config(enable_metadata_routing=True) and set_fit_request)."
        )
    return classes, np.where(y == classes[1], 1.0, -1.0)


def _two_classes(y: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted classes, by comparisons instead of a sort where there are two, as there should be."""
    others = y[y != y[0]]
    if len(others) and not np.any(others != others[0]):
        return np.sort(np.array([y[0], others[0]], dtype=y.dtype))
    return np.unique(y)


def row_weights(sample_weight: Any, class_weight: Any, X: Any, signs: Array, classes: NDArray[Any], name: str) -> Array:
    """Return the weight of each row, float64, made of sample_weight and class_weight."""
    weights = np.asarray(
        _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True), dtype=np.float64
    )
    totals = np.array([weights @ (signs < 0), weights @ (signs > 0)])
    if not np.all(np.isfinite(totals)):
        raise ValueError(f"{name}.fit: sample_weight sums to infinity. Scale it down.")
    if np.any(totals <= 0):
        what = (
            "is zero for every row"
            if not np.any(totals)
            else f"is zero for every row of class {classes[np.argmin(totals)]!r}"
        )
        raise ValueError(f"{name}.fit: sample_weight {what}. Give some row of each class a positive weight.")
    factors = _class_factors(class_weight, totals, classes, name)
    return weights * np.where(signs > 0, factors[1], factors[0])


def known_signs(y: NDArray[Any], classes: NDArray[Any], name: str) -> Array:
    """Return y as -1 and +1 by classes that were stated before."""
    check_classification_targets(y)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"{name}.partial_fit: y contains {unknown.tolist()!r}, but classes is {classes.tolist()!r}. "
            "Name all classes at the first call."
        )
    return np.where(y == classes[1], 1.0, -1.0)


def stated_classes(classes: Any, name: str) -> NDArray[Any]:
    """Return the two sorted classes that the first call of partial_fit states."""
    if classes is None:
        raise ValueError(
            f"{name}.partial_fit: classes must be passed on the first call. "
            "Name all classes, partial_fit(X, y, classes=[0, 1]): later rows may be of classes not seen yet."
        )
    found = np.unique(np.asarray(classes))
    if len(found) != 2:
        raise ValueError(f"{name}.partial_fit(classes={found.tolist()!r}): only binary classification, two classes.")
    return found


def part_weights(
    sample_weight: Any, class_weight: Any, X: Any, signs: Array, classes: NDArray[Any], name: str
) -> Array:
    """Return the weight of each row of a part, which need not hold both classes."""
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    return weights * _class_factors(class_weight, np.ones(2), classes, name)[(signs > 0).astype(int)]


def _class_factors(class_weight: Any, totals: Array, classes: NDArray[Any], name: str) -> Array:
    if class_weight is None:
        return np.ones(2)
    if isinstance(class_weight, str) and class_weight == "balanced":
        return totals.sum() / (2 * totals)
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"{name}(class_weight={class_weight!r}): give None, 'balanced', or a dict from class to weight."
        )
    unknown = set(class_weight) - set(classes.tolist())
    if unknown:
        raise ValueError(
            f"{name}(class_weight=...): no such class in y: {sorted(map(repr, unknown))}. Classes: {classes.tolist()}."
        )
    factors = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not np.all(np.isfinite(factors)) or np.any(factors <= 0):
        raise ValueError(f"{name}(class_weight={class_weight!r}): weights must be positive numbers.")
    return factors


def number(value: Any, call: str, *, strictly: bool = False) -> float:
    """Return `value` as a float after checking its range; `call` is quoted in the error."""
    right = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and np.isfinite(float(value))
    if not right or float(value) < 0 or (strictly and float(value) == 0):
        raise ValueError(f"{call}={value!r}): must be a finite number {'>' if strictly else '>='} 0.")
    return float(value)


class _OneBlasThread:
    """A context in which BLAS runs on one thread, also where fits in several threads overlap: the last one out restores."""

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
"""BLAS on one thread: on small matrices two are slower, on a busy machine many times so."""
