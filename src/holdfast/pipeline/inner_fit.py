"""What classifiers that wrap another classifier share: they hand metadata on to its `fit`."""

from __future__ import annotations

from typing import Any

from sklearn import get_config
from sklearn.base import MetaEstimatorMixin
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from holdfast._core.allowed import Having

CLASSIFIER = Having(("fit", "predict", "get_params"), "give a classifier, such as LogisticRegression()")


class InnerFit(MetaEstimatorMixin):
    """A classifier that takes some metadata itself and hands other metadata on to the `fit` of its `estimator`."""

    estimator: Any

    def get_metadata_routing(self) -> Any:
        """Return which metadata this classifier takes, and which it hands on to the estimator's `fit`."""
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))

    def _handed_on(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the `params` of fit that go to the estimator: those that it requests, or all if routing is off."""
        if params and get_config()["enable_metadata_routing"]:
            return dict(process_routing(self, "fit", **params).estimator.fit)
        return params
