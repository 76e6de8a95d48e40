"""What differs by row: one argument for each name, seen by scikit-learn and by readers, and documented once."""

import inspect
import pydoc
import re
from typing import Any, Unpack

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from holdfast import (
    Box,
    GaussianRobustClassifier,
    NoiseAwareClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SafeClassifier,
    estimators,
)
from holdfast._core.metadata import METADATA, NOISE, NoiseByRow, SetsByRow, takes_metadata

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
y = (X[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(int)
S = rng.uniform(0.1, 0.3, size=X.shape)


def taking_noise():
    """Return all functions and methods of `holdfast.estimators` that take X_std, by name."""
    found = {}
    for name in estimators.__all__:
        value = getattr(estimators, name)
        methods = {f"{name}.{key}": part for key, part in inspect.getmembers(value, inspect.isfunction)}
        found |= methods if inspect.isclass(value) else {name: value}
    named = {name: part for name, part in found.items() if part.__module__.startswith("holdfast") and "._" not in name}
    return {name: part for name, part in named.items() if "X_std" in inspect.signature(part).parameters}


@pytest.mark.parametrize("name", sorted(taking_noise()))
def test_every_argument_by_row_has_a_default_a_place_and_documentation(name):
    function = taking_noise()[name]
    parts = inspect.signature(function).parameters
    stated = [part for part in parts.values() if part.name in METADATA]
    assert all(part.default is None and part.kind is part.KEYWORD_ONLY for part in stated)
    assert not any(part.kind is part.VAR_KEYWORD for part in parts.values())
    doc = inspect.getdoc(function)
    assert "**metadata" not in doc
    if "Parameters\n" in doc:
        documented = set(re.findall(r"\w+", " ".join(re.findall(r"^[\w, ]+(?= : |$)", doc, re.MULTILINE))))
        assert set(parts) - {"self"} <= documented


def test_documentation_is_filled_in_where_it_is_asked_for():
    @takes_metadata
    def shared(X, *, groups=None, **metadata: Unpack[NoiseByRow]):
        """Do.

        Parameters
        ----------
        X : array
        **metadata
        groups : array
        """

    @takes_metadata
    def own(X, **metadata: Unpack[SetsByRow]):
        """Do.

        Parameters
        ----------
        **metadata
            As it is.

            In two parts.

        Returns
        -------
        float
        """

    text = inspect.getdoc(shared)
    assert [text.index(word) for word in ("X : ", "X_std : ", "X_cov : ", "X_factor : ", "groups : ")] == sorted(
        text.index(word) for word in ("X : ", "X_std : ", "X_cov : ", "X_factor : ", "groups : ")
    )
    assert "\nX_cov : array-like of shape (n_samples, n_features, n_features), default=None\n    Covariance" in text
    assert list(inspect.signature(shared).parameters) == ["X", *NOISE, "groups"]
    assert (
        f"{', '.join(METADATA)} : array-like, default=None\n    As it is.\n\n    In two parts.\n\nReturns"
        in inspect.getdoc(own)
    )


def test_the_body_receives_what_is_stated_and_nothing_else():
    @takes_metadata
    def found(X: Any, **metadata: Unpack[NoiseByRow]):
        return metadata

    assert found(1, X_std=2, X_cov=None) == {"X_std": 2}
    with pytest.raises(TypeError, match=r"found: no such argument: X_sdt\. .*X_std, X_cov, X_factor"):
        found(1, X_sdt=2)
    with pytest.raises(TypeError, match=r"RobustLinearClassifierCV\.fit: no such argument: X_sdt"):
        RobustLinearClassifierCV().fit(X, y, X_sdt=S)
    with pytest.raises(TypeError, match="positional"):
        RobustLinearClassifier(Box()).fit(X, y, None, S)


def test_help_shows_the_arguments():
    text = pydoc.plain(pydoc.render_doc(RobustLinearClassifier.fit))
    assert all(re.search(rf"{name}: '?Any'? = None", text) for name in METADATA)


@pytest.mark.parametrize(
    "model",
    [GaussianRobustClassifier(), RobustLinearClassifier(Box()), SafeClassifier(), RobustLinearClassifierCV(cv=2)],
)
def test_routing_sees_what_fit_takes(model):
    with config_context(enable_metadata_routing=True):
        asked = model.set_fit_request(X_std=True).get_metadata_routing().fit.requests
        assert {"sample_weight", *NOISE} <= set(asked)
        assert (asked["X_std"], asked["X_cov"]) == (True, None)
        with pytest.raises(TypeError, match="Unexpected"):
            model.set_fit_request(X_sdt=True)


def test_a_pipeline_and_a_search_hand_on_what_is_asked_for():
    told = GaussianRobustClassifier(loss="hinge", alpha=0.1).fit(X, y, X_std=S)
    with config_context(enable_metadata_routing=True):
        model = GaussianRobustClassifier(loss="hinge", alpha=0.1).set_fit_request(X_std=True)
        np.testing.assert_array_equal(make_pipeline(model).fit(X, y, X_std=S)[-1].coef_, told.coef_)
        search = GridSearchCV(model, {"alpha": [0.1]}, cv=2).fit(X, y, X_std=S)
        np.testing.assert_array_equal(search.best_estimator_.coef_, told.coef_)
        aware = NoiseAwareClassifier(n_components=3, n_copies=1)
        asked = GridSearchCV(aware, {"alpha": [1.0]}, cv=2).fit(X, y, X_std=S)  # requests it in score too
        assert asked.score(X, y, X_std=S) == asked.best_estimator_.score(X, y, X_std=S)
