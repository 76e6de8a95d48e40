"""What classifiers around another one share: handing metadata on to its fit."""

from __future__ import annotations

from typing import Any

from sklearn import get_config
from sklearn.base import MetaEstimatorMixin
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from holdfast._core.allowed import Having

CLASSIFIER = Having(("fit", "predict", "get_params"), "give a classifier, such as LogisticRegression()")


class InnerFit(MetaEstimatorMixin):
    """A classifier that takes metadata itself and passes others on to the `fit` of its `estimator`."""

    estimator: Any

    def get_metadata_routing(self) -> Any:
        """Return what metadata this classifier takes, and what it hands on to the estimator's `fit`."""
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))

    def _handed_on(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return those `params` of fit that go to the estimator: what it requests, or with routing off all."""
        if params and get_config()["enable_metadata_routing"]:
            return dict(process_routing(self, "fit", **params).estimator.fit)
        return params
