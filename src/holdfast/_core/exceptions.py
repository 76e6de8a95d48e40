"""Warnings and errors of our own."""


class CollapseWarning(UserWarning):
    """The best model under the stated uncertainty ignores the features: w = 0 is certified optimal."""


class EndOfPathWarning(UserWarning):
    """The best of the settings tried is the smallest or the largest of them, so that one beyond may be better still."""


class NoCertificateError(TypeError):
    """A classifier, or a step before it, of which nothing is certain."""


class NothingLearnedWarning(UserWarning):
    """Lengths were to be learned and stay at the least that was stated: nothing to learn from, or nothing gained by it."""


class ProofError(RuntimeError):
    """A proof contradicts itself: a fault in holdfast, which asks for a report. Nothing is fitted."""


class UnitsWarning(UserWarning):
    """Errors that a fit is told of are larger than the rows vary: they are probably in other units.

    Measured values vary by at least as much as their errors do. So a column is named where the median error of its rows, as
    stated by ``X_std``, ``X_cov``, ``X_factor``, or half of ``X_upper - X_lower``, is above twice its standard deviation. A
    factor in a constructor counts where it makes errors smaller (``Box(0.1)`` with ``X_std=abs(X)`` means a tenth), not where
    it makes them larger (``noise=4``).

    It finds most errors in units that are too small (mm for m), errors that were not scaled with X, variances in the place of
    large deviations, and X and its errors the wrong way round. It cannot see

    - errors that are too small: in units that are too large, those of features below 1 that were scaled up without them, and
      variances in the place of deviations below 1;
    - wrong errors that are still below the spread of their column, or that fewer than half of the rows have (most of a sparse
      ``X_std`` are 0);
    - columns with the same value in more than nine of ten rows, whose standard deviation is that of a few, and data of fewer
      than 20 rows;
    - what is stated in a constructor, ``X_radius``, parts of rows (`partial_fit`), and rows at prediction.

    Where the errors are really that large, ``warnings.simplefilter("ignore", holdfast.exceptions.UnitsWarning)`` turns it off.
    """


class UnstatedError(ValueError):
    """What may be wrong with rows is stated neither by a set nor by metadata of the rows."""
