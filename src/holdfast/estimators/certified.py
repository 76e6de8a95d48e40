"""`certify` and `certified_margin`, for all classifiers: which predictions no admissible input can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from holdfast._certificates.fitted import linear_model, refuse_own_predicts
from holdfast._certificates.models import Model
from holdfast._certificates.views import View, refuse_scores_alone
from holdfast._core.labels import check_columns, check_features
from holdfast._core.loss import Array
from holdfast._core.metadata import SetsByRow, takes_metadata
from holdfast._core.offers import offered_if
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet


def _is_known(model: Any) -> bool:
    plain = model.linear_kernel
    if getattr(model, "kernel", plain) in (plain, "rbf"):
        return True
    raise AttributeError(
        f"{type(model).__name__}(kernel={model.kernel!r:.40}) has no certify: only kernel={plain!r} and kernel='rbf' "
        "have certificates."
    )


class CertifiedPredictions:
    """A classifier whose scores are linear in the rows, or in a kernel's features, so that any set can be certified."""

    coef_: Array
    intercept_: Array
    classes_: NDArray[Any]
    linear_kernel: ClassVar[str | None] = None
    """The value of `kernel`, in classes that have one, for which scores are linear in the features."""

    def certificate_model(self) -> Model:
        """Return the fitted classifier as certificates see it."""
        return linear_model(self.coef_, self.intercept_)

    @offered_if(_is_known)
    @takes_metadata
    def certify(
        self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Unpack[SetsByRow]
    ) -> NDArray[np.bool_]:
        """Return for each row whether no admissible input can change its prediction.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        uncertainty : UncertaintySet, default=None
            The sets, such as ``Box(0.1)``, which multiply metadata as in `fit`. None: the sets that the model was
            trained for. A model that was trained for noise, or for exact rows, has none, so it needs this argument.
        **metadata
            The sizes of sets that differ by row. With the model's own sets they are taken as stated, never multiplied
            by a radius. A model that was fitted with metadata needs them here too.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.certified_margin(X, uncertainty, **metadata) > 0

    @offered_if(_is_known)
    @takes_metadata
    def certified_margin(
        self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Unpack[SetsByRow]
    ) -> Array:
        r"""Return the lead of each prediction at the worst admissible input; negative where the prediction can change.

        With two classes it is :math:`|f(x)| - h(-\mathrm{sign}(f) w)`, where h is the support function of the row's
        set. With more it is the smallest :math:`f_k - f_l - h(w_l - w_k)` over all classes l other than the predicted
        class k. It is exact up to rounding; rounding errors are subtracted, so a margin > 0 is a proof. For an RBF
        kernel, or features of one, it is a lower bound, the best of several at each row; see
        :func:`holdfast.certified_radius`. Sets are stated as for `certify`.
        """
        view, sets = self._view_and_sets(X, uncertainty, metadata, "certify")
        return view.margins(sets)[1]

    def _view_and_sets(
        self, X: Any, uncertainty: UncertaintySet | None, metadata: Mapping[str, Any], method: str
    ) -> tuple[View, RowSets]:
        """Return the model as certificates see it at rows X, and the rows' sets, after checking the question."""
        check_is_fitted(self)
        refuse_own_predicts(self)
        call = f"{type(self).__name__}.{method}"
        check_columns(X, metadata, self)
        check_features(X, {"uncertainty": uncertainty}, self)
        rows: Any = self._rows_to_score(X)  # type: ignore[attr-defined]
        chosen = self._own_set(rows, metadata, call) if uncertainty is None else uncertainty
        if not isinstance(chosen, UncertaintySet):
            raise ValueError(f"{call}(X, uncertainty={chosen!r:.80}): give a set, such as Ball(0.3) or Box(0.1).")
        worst, cloud = chosen.split(rows, metadata)
        if cloud is not None or worst is None:
            raise ValueError(
                f"{call}(uncertainty={chosen!r}): Gaussian noise has no bounds, so no prediction is certain and no row is the "
                "worst. State a set: ChanceConstraint(epsilon, 'gaussian') bounds what happens with probability 1 - epsilon."
            )
        model = self.certificate_model()
        refuse_scores_alone(model, chosen)
        return View(model, X, rows, rows.shape[1]), worst

    def _own_set(self, rows: Any, stated: Mapping[str, Any], call: str) -> UncertaintySet:
        """Return the set that the model was trained for, with the sizes that metadata state."""
        raise ValueError(
            f"{call}: {type(self).__name__} was trained for no set of inputs, so say which to certify against: "
            "certify(X, Box(0.1)), certify(X, Box(), X_std=...)."
        )
