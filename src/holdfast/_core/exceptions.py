"""The warnings and errors of holdfast."""


class CollapseWarning(UserWarning):
    """The best model under the stated uncertainty ignores the features: w = 0 is certified optimal."""


class EndOfPathWarning(UserWarning):
    """The best setting is the smallest or the largest of those tried, so a setting beyond it may be better still."""


class NoCertificateError(TypeError):
    """No certificate is known for a classifier, or for a step before it."""


class NothingLearnedWarning(UserWarning):
    """Learned lengths stay at the smallest length stated: there is nothing to learn from, or learning gains nothing."""


class ProofError(RuntimeError):
    """A proof contradicts itself, which is a bug in holdfast; please report it. Nothing is fitted."""


class UnitsWarning(UserWarning):
    """The stated errors are larger than the variation of the rows, so they are probably in other units.

    Measured values vary at least as much as their errors. So the warning names a column if the median error of its
    rows, as stated by ``X_std``, ``X_cov``, ``X_factor``, or half of ``X_upper - X_lower``, is above twice the standard
    deviation of the column. A factor in a constructor counts if it makes errors smaller (``Box(0.1)`` with
    ``X_std=abs(X)`` means a tenth), but not if it makes them larger (``noise=4``).

    It detects most cases of errors in too small a unit (mm for m), errors that were not scaled with X, variances in
    place of large standard deviations, and X exchanged with its errors. It cannot detect

    - errors that are too small: in units that are too large, those of features below 1 that were scaled up without them, and
      variances in place of standard deviations below 1;
    - wrong errors that are still below the spread of their column, or that occur in fewer than half of the rows (most
      of a sparse ``X_std`` are 0);
    - columns with the same value in more than nine of ten rows, whose standard deviation comes from a few rows, and
      data of fewer than 20 rows;
    - errors stated in a constructor, ``X_radius``, parts of rows (`partial_fit`), and rows at prediction.

    If the errors are really that large, turn the warning off:
    ``warnings.simplefilter("ignore", holdfast.exceptions.UnitsWarning)``.
    """


class UnstatedError(ValueError):
    """The size of the errors is stated neither by a set nor by metadata of the rows."""
