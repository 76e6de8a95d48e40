"""Tables with columns of errors, as a pipeline takes them."""

from __future__ import annotations

from typing import Any

from holdfast._core.allowed import arguments
from holdfast.datasets.measurements import (
    COLUMNS,
    COLUMNS_MISSING,
    ERRORS_MISSING,
    VALUES_MISSING,
    Missing,
    errors_beside,
)


@arguments(missing=COLUMNS_MISSING, errors_missing=ERRORS_MISSING, values_missing=VALUES_MISSING, exclude=COLUMNS)
def split_errors(
    frame: Any,
    *,
    suffix: str = "_err",
    missing: str = "error",
    errors_missing: str = "raise",
    values_missing: str = "raise",
    exclude: Any = (),
) -> tuple[Any, Any]:
    """Return the values X of a table and, under the same names, their errors X_std.

    As :func:`holdfast.datasets.values_and_errors`, which says what the arguments mean.

    Parameters
    ----------
    frame : frame of pandas or polars, of shape (n_rows, n_columns)
    suffix : str, default="_err"
    missing : {"error", "exact"}, default="error"
    errors_missing : {"raise", "median", "column maximum"}, default="raise"
    values_missing : {"raise", "keep"}, default="raise"
    exclude : str or sequence of str, default=()

    Examples
    --------
    >>> import pandas
    >>> stars = pandas.DataFrame({"star": ["A", "B", "C"], "mass": [1.0, 2.0, None], "mass_err": [0.1, None, None]})
    >>> X, X_std = split_errors(stars, exclude="star", errors_missing="column maximum", values_missing="keep")
    >>> X["mass"].tolist(), X_std["mass"].tolist()
    ([1.0, 2.0, nan], [0.1, 0.1, 0.0])
    """
    return errors_beside(frame, suffix, Missing(missing, errors_missing, values_missing), exclude, "split_errors")
