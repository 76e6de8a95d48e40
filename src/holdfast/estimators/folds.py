"""Folds of cross-validation, and the choice of a setting by their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from holdfast._core.allowed import NOTHING, Count, Having, short
from holdfast._core.loss import Array

CV = (
    NOTHING
    | Count(2)
    | Having(("split",), "a splitter")
    | Having(("__iter__",), "pairs of training and validation rows")
)
"""What `cv` may be."""


def splits_of(
    search: Any, X: Any, y: NDArray[Any], weights: Array | None, groups: Any
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the indices of the training rows and of the validation rows of each fold.

    Raises if the training rows of a fold lack a class, or if its validation rows all have weight 0.
    """
    everyone, call = np.arange(len(y)), f"{type(search).__name__}(cv={short(search.cv):.80})"
    try:
        splitter = check_cv(search.cv, y, classifier=True)
        found = [(everyone[np.asarray(a)], everyone[np.asarray(b)]) for a, b in splitter.split(X, y, groups)]
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{call}.fit(..., groups={short(groups):.80}): {error}") from error
    if not found:
        raise ValueError(f"{call}: gives no folds. Give at least one.")
    classes = np.unique(y)
    for own, held_out in found:
        if len(missing := np.setdiff1d(classes, y[own])):
            raise ValueError(
                f"{call}: the training rows of a fold hold no row of class {missing.tolist()[0]!r}. Use fewer folds, or a "
                "stratified splitter."
            )
        if weights is not None and not np.any(weights[held_out]):
            raise ValueError(
                f"{call}: sample_weight is zero for all validation rows of a fold. Use fewer folds, or leave out rows of "
                "weight zero."
            )
    return found


def chosen(tried: Mapping[str, Array], scores: Array, gaps: Array, ties: Sequence[Array]) -> tuple[int, dict[str, Any]]:
    """Return the index of the setting with the best mean of `scores`, (n_folds, n_tried), and its fitted attributes.

    Ties are broken by the largest entry of the first of `ties`, then of the second, and so on.
    """
    mean = scores.mean(axis=0)
    best = int(np.lexsort((*ties[::-1], mean))[-1])
    results = {
        **{f"param_{name}": column for name, column in tried.items()},
        **{f"split{i}_test_score": row for i, row in enumerate(scores)},
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=0),
        "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        "max_gap": gaps.max(axis=0),
    }
    own = {f"{name}_": float(column[best]) for name, column in tried.items()}
    return best, own | {"best_score_": float(mean[best]), "cv_results_": results}


def taken(values: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows of `values`, or None if `values` is None."""
    return None if values is None else _safe_indexing(values, rows)


def scored(scorer: Any, model: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return a scorer's result; the scorer is given the weights of the rows if its metric takes them."""
    metric = getattr(scorer, "_score_func", scorer)
    takes_weights = not isinstance(metric, type) and "sample_weight" in signature(metric).parameters
    weighting = {"sample_weight": sample_weight} if takes_weights and sample_weight is not None else {}
    found = scorer(model, X, y, **weighting)
    if not isinstance(found, Real):
        raise ValueError(f"scoring={scorer!r:.80}: gave {found!r:.80} on the validation rows, no number.")
    return float(found)
