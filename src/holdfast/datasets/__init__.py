"""Convert tables of measurements to the arrays that `fit` takes, and load small data sets with errors.

`values_and_errors`, `values_and_intervals` and `values_and_bounds` read tables (NumPy, pandas, polars) with columns of
errors or bounds; `intervals_from_replicates` turns repeated measurements into intervals.
"""

from holdfast.datasets.bundled import ErrorBars, load_breast_cancer_errors
from holdfast.datasets.folder import load_from_folder
from holdfast.datasets.measurements import (
    Intervals,
    intervals_from_replicates,
    values_and_bounds,
    values_and_errors,
    values_and_intervals,
)

__all__ = [
    "ErrorBars",
    "Intervals",
    "intervals_from_replicates",
    "load_breast_cancer_errors",
    "load_from_folder",
    "values_and_bounds",
    "values_and_errors",
    "values_and_intervals",
]
