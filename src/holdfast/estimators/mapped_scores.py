"""Scores that are linear in the features of a feature map."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from holdfast._certificates.fitted import linear_model
from holdfast._certificates.models import Model
from holdfast._certificates.pipelines import model_before
from holdfast._core.loss import Array
from holdfast.estimators.linear import LinearClassifier
from holdfast.features.expected_features import checked_rows
from holdfast.features.gram import BLOCK_ENTRIES
from holdfast.features.robust_features import RobustFeatures


class MappedScores(LinearClassifier):
    """A classifier whose scores are linear in the features of `feature_map_`, or in the rows if there is no map."""

    feature_map_: RobustFeatures

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _rows_to_score(self, X: Any) -> Array:
        found: Array = checked_rows(self, X, call=type(self).__name__, reset=False)
        return found

    def _mapped(self, X: Array) -> Array:
        """Return the mapped features of checked rows."""
        return self.feature_map_._features(X) if hasattr(self, "feature_map_") else X

    def _scores(self, X: Array) -> Array:
        parts = gen_batches(len(X), max(1, BLOCK_ENTRIES // self.coef_.shape[1]))
        scores = np.concatenate([self._mapped(X[part]) @ self.coef_.T for part in parts]) + self.intercept_
        return scores.ravel() if len(self.coef_) == 1 else scores

    def certificate_model(self) -> Model:
        """Return the fitted classifier as certificates see it."""
        check_is_fitted(self)
        found = linear_model(self.coef_, self.intercept_)
        if not hasattr(self, "feature_map_"):
            return found
        mapped = model_before(self.feature_map_.uncertainty_effect(self.n_features_in_), found)
        assert mapped is not None
        return mapped
