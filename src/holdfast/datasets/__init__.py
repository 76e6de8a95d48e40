"""Data sets: what scikit-learn bundles, with its error bars, and files a folder named by HOLDFAST_DATA holds."""

from holdfast.datasets.bundled import load_breast_cancer_errors as load_breast_cancer_errors
from holdfast.datasets.folder import load_from_folder as load_from_folder
