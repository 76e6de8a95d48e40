"""scikit-learn's callbacks hear of a fit: its beginning, its steps, its end, and of its failure too."""

import logging

import numpy as np
import pytest
from sklearn.base import clone

from holdfast import GaussianRobustClassifier

callback = pytest.importorskip("sklearn.callback")  # scikit-learn 1.9


class Witness:
    """A callback that writes down what it hears."""

    def __init__(self):
        self.heard, self.begun, self.ended, self.X = [], [], [], None

    def setup(self, estimator, context):
        self.heard.append("setup")

    def teardown(self, estimator, context):
        self.heard.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        self.begun.append(context.task_name)
        self.X = X

    def on_fit_task_end(self, estimator, context, *, X=None, y=None):
        self.ended.append(context.task_name)
        self.fitted = hasattr(estimator, "coef_")


@pytest.fixture(params=["binary", "several classes", "logistic"])
def case(request, several_classes):
    """X, y and a model."""
    X, y = several_classes((20, 15, 10))
    if request.param == "binary":
        X, y = X[y < 2], y[y < 2]
    return X, y, GaussianRobustClassifier(0.5, loss="logistic" if request.param == "logistic" else "hinge")


def test_callbacks_hear_of_every_step_in_order(case):
    X, y, model = case
    witness = Witness()
    assert model.set_callbacks(witness) is model
    model.fit(X, y)
    assert witness.heard == ["setup", "teardown"]
    assert witness.begun[0] == "fit" == witness.ended[-1]
    assert witness.begun[1:] == witness.ended[:-1]
    assert any("objective" in name for name in witness.begun)
    assert any("certified gap" in name for name in witness.begun)
    assert witness.fitted
    assert witness.X is X


def test_callbacks_change_nothing(case):
    X, y, model = case
    plain = clone(model).fit(X, y)
    heard = model.set_callbacks(Witness()).fit(X, y)
    np.testing.assert_array_equal(heard.coef_, plain.coef_)
    assert heard.n_iter_ == plain.n_iter_


def test_callbacks_are_set_up_anew_for_every_fit_and_can_be_removed(case):
    X, y, model = case
    witness = Witness()
    model.set_callbacks(witness).fit(X, y).fit(X, y)
    assert witness.heard == ["setup", "teardown"] * 2
    model.set_callbacks().fit(X, y)
    assert witness.heard == ["setup", "teardown"] * 2


def test_teardown_follows_an_error_too(case):
    X, y, model = case

    class Saboteur(Witness):
        def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
            super().on_fit_task_begin(estimator, context)
            if "objective" in context.task_name:
                raise RuntimeError("enough")

    saboteur = Saboteur()
    with pytest.raises(RuntimeError, match="enough"):
        model.set_callbacks(saboteur).fit(X, y)
    assert saboteur.heard == ["setup", "teardown"]
    assert not hasattr(model, "coef_")


def test_bad_input_is_refused_before_callbacks_are_bothered(case):
    X, y, model = case
    witness = Witness()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.set_callbacks(witness).fit(X, y[:-1])
    assert witness.heard == []


def test_progress_bar_of_scikit_learn_is_understood(case, capsys):
    pytest.importorskip("rich")
    X, y, model = case
    model.set_callbacks(callback.ProgressBar()).fit(X, y)
    assert "GaussianRobustClassifier" in capsys.readouterr().out


def test_progress_is_logged_line_by_line_when_asked_for(case, caplog):
    X, y, model = case
    with caplog.at_level(logging.INFO, logger="holdfast"):
        model.fit(X, y)
        assert not caplog.records
        witness = Witness()
        model.set_params(verbose=1).set_callbacks(witness).fit(X, y)
    assert {record.name for record in caplog.records} == {"holdfast"}
    assert caplog.messages == witness.begun[1:]
    assert any("certified gap" in message for message in caplog.messages)
