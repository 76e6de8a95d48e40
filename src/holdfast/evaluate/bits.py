"""The smallest number of bits in which the weights of a linear model can be stored without changing predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast._core.allowed import Switch, arguments
from holdfast._core.rounding import gamma
from holdfast.evaluate.certificates import AS_COMPUTED
from holdfast.evaluate.fitted import asked, linear_only, settled, straight_only
from holdfast.evaluate.results import SafeBits


@arguments(intercept=Switch())
def safe_bits(model: Any, X: Any, *, intercept: bool = False) -> SafeBits:
    r"""Return, for each row, the smallest number of bits b per weight that is certain to leave its prediction as it is.

    Weights are stored as integers from :math:`-(2^{b-1} - 1)` to :math:`2^{b-1} - 1` times a common step
    :math:`h = \max |w| / (2^{b-1} - 1)`, rounded to the nearest, so that each is off by h / 2 at most. The lead of a
    class over another falls by no more than :math:`h \|x\|_1` (:math:`h \|x\|_1 / 2` for two classes or a contest of
    two, which have one vector of weights); b is the smallest number for which this fall is less than the lead. Then no
    rounding of weights within h / 2 can change the prediction; a particular rounding may leave it as it is with fewer
    bits too.

    Parameters
    ----------
    model : classifier
        Fitted; linear, see :func:`certified_radius`. The weights are those in the units of X: for a pipeline, the
        weights of all its steps together. For weights after scaling use
        ``safe_bits(pipeline[-1], pipeline[:-1].transform(X))``.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    intercept : bool, default=False
        Whether intercepts are stored in the same way, by the same step h; then the largest of weights and intercepts
        sets h.

    Returns
    -------
    SafeBits
        With `bits`, `all_rows` (the number of bits that is enough for all rows), `predicted`, `method` and
        `assumption`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 2.0], [4.0, 3.0]]), [0, 0, 1, 1]
    >>> safe_bits(LogisticRegression().fit(X, y), X).bits
    array([2., 2., 4., 3.])
    """
    view, classes = asked(model, X)
    straight_only(view, "safe_bits", "Ask about the weights after it: safe_bits(pipe[-1], pipe[:-1].transform(X)).")
    linear, rows = linear_only(view, "safe_bits"), view.rows
    if view.has_missing:
        raise ValueError(
            "safe_bits(model, X): not for rows with missing entries. Leave them out, or fill them in before."
        )
    stored = [linear.coef, linear.intercept] if intercept else [linear.coef]
    largest = max(float(np.abs(part).max(initial=0.0)) for part in stored)
    n, codes = rows.shape[0], np.zeros(rows.shape[0], dtype=np.intp)
    bits = np.full(n, np.inf)
    for part, block, (own, leads, _) in view.lead_blocks():
        lengths = np.ravel(abs(block).sum(axis=1, dtype=np.float64)) + float(intercept)
        vectors = linear.decision.table(lambda C: np.abs(C).sum(axis=1))
        # the number of levels that is needed: with n levels a step is largest / n, and half of it times |x|_1 must stay
        # below the lead
        moved = 0.5 * largest * linear.decision.of_rows(vectors, own) * lengths[:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            levels = np.where(leads > 0, moved / leads, np.inf).max(axis=1) * (1 + gamma(2 * linear.n_features + 8))
        # 2^(b-1) - 1 > levels, and k.bit_length() of integers k >= 1 is the exponent of frexp
        enough = np.isfinite(levels)
        codes[part] = own
        bits[part] = np.where(enough, 1.0 + np.frexp(np.floor(np.where(enough, levels, 0.0)) + 1)[1], np.inf)
    return SafeBits(
        predicted=settled(model, view, classes, codes, np.isfinite(bits)),
        bits=bits,
        method="linear: half a step of each weight against the lead",
        assumption=f"no weights within half a step give a row another class, {AS_COMPUTED}",
    )
