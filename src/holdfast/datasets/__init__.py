"""Data sets that scikit-learn bundles or a folder holds, and the arrays of what people measure."""

from holdfast.datasets.bundled import load_breast_cancer_errors as load_breast_cancer_errors
from holdfast.datasets.folder import load_from_folder as load_from_folder
from holdfast.datasets.measurements import Intervals as Intervals
from holdfast.datasets.measurements import intervals_from_replicates as intervals_from_replicates
from holdfast.datasets.measurements import values_and_bounds as values_and_bounds
from holdfast.datasets.measurements import values_and_errors as values_and_errors
from holdfast.datasets.measurements import values_and_intervals as values_and_intervals
