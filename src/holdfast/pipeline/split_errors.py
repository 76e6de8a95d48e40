"""Tables with columns of errors, as a pipeline takes them."""

from __future__ import annotations

from typing import Any

from holdfast.datasets.measurements import errors_beside


def split_errors(frame: Any, *, suffix: str = "_err", missing: str = "error") -> tuple[Any, Any]:
    """Return the values X of a table and, under the same names, their errors X_std.

    As :func:`holdfast.datasets.values_and_errors`.

    Parameters
    ----------
    frame : frame of pandas or polars, of shape (n_rows, n_columns)
    suffix : str, default="_err"
    missing : {"error", "exact"}, default="error"

    Examples
    --------
    >>> import pandas
    >>> X, X_std = split_errors(pandas.DataFrame({"mass": [1.0, 2.0], "mass_err": [0.1, 0.3]}))
    >>> X_std["mass"].tolist()
    [0.1, 0.3]
    """
    return errors_beside(frame, suffix, missing, "split_errors")
