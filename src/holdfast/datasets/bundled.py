"""Data that come with scikit-learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from holdfast._core.summary import summarized


@summarized
class ErrorBars(NamedTuple):
    """Measurements with their standard errors."""

    X: NDArray[np.float64]
    X_std: NDArray[np.float64]
    y: NDArray[np.int_]
    feature_names: list[str]


def load_breast_cancer_errors() -> ErrorBars:
    """Return the breast-cancer data as measured: 10 mean features of 569 cell images and the standard error of each.

    The original data list, for every image and feature, the mean over its cell nuclei, the standard error of that mean
    and the worst value. Class 1 is benign.

    Examples
    --------
    >>> data = load_breast_cancer_errors()
    >>> data.X.shape, data.X_std.shape, data.feature_names[0]
    ((569, 10), (569, 10), 'radius')
    """
    raw = load_breast_cancer()
    names = [str(name).removeprefix("mean ") for name in raw.feature_names[:10]]
    return ErrorBars(raw.data[:, :10], raw.data[:, 10:20], raw.target, names)
