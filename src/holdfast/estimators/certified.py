"""Which predictions of a classifier are certain: `certify` and `certified_margin`, for all classifiers alike."""

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
        f"{type(model).__name__}(kernel={model.kernel!r:.40}) has no certify: certified are kernel={plain!r} and kernel='rbf' "
        "alone."
    )


class CertifiedPredictions:
    """A classifier whose scores are linear, in the rows or in features of a kernel, so that certificates hold for any set."""

    coef_: Array
    intercept_: Array
    classes_: NDArray[Any]
    linear_kernel: ClassVar[str | None] = None
    """The value of `kernel`, in classes that have one, for which scores are linear in the features."""

    def certificate_model(self) -> Model:
        """Return what certificates see of the fitted classifier."""
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
            The sets, such as ``Box(0.1)``, which multiply metadata as at `fit`. None: those that the model was trained for; a
            model trained for noise, or for exact rows, has none, and asks for some.
        **metadata
            The sets that differ by row. With the model's own sets they are taken as stated, never multiplied by a radius; a
            model fitted with metadata asks for them.

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
        r"""Return by how much each prediction leads at the worst admissible input; negative where it can be changed.

        Two classes: :math:`|f(x)| - h(-\mathrm{sign}(f) w)` with the support function h of the row's set. More: the smallest
        over all other classes l of :math:`f_k - f_l - h(w_l - w_k)`, where k is the predicted class. Exact but for rounding,
        which is subtracted, so that a margin > 0 is proof. For an RBF kernel, or features of one, it is a lower bound, the best
        of several at each row; see :func:`holdfast.certified_radius`. Takes sets as `certify` does.
        """
        view, sets = self._view_and_sets(X, uncertainty, metadata, "certify")
        return view.margins(sets)[1]

    def _view_and_sets(
        self, X: Any, uncertainty: UncertaintySet | None, metadata: Mapping[str, Any], method: str
    ) -> tuple[View, RowSets]:
        """Return the model as certificates see it at rows X, and the sets of these rows, once the question makes sense."""
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
        """Return the set that the model was trained for, as metadata state it."""
        raise ValueError(
            f"{call}: {type(self).__name__} was trained for no set of inputs, so say which to certify against: "
            "certify(X, Box(0.1)), certify(X, Box(), X_std=...)."
        )
