import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from holdfast import GaussianNoise
from holdfast.datasets import load_breast_cancer_errors
from holdfast.evaluate import budgets, noise_budget, what_is_to_gain


@pytest.fixture(scope="module")
def cancer():
    X, S, y, _ = load_breast_cancer_errors()
    return X, S, y, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)


def simulated(model, X, y, errors, n_draws=300):
    """Return accuracy under Gaussian errors, its mean and standard error."""
    rng = np.random.default_rng(5)
    shares = [np.mean(model.predict(X + errors * rng.normal(size=X.shape)) == y) for _ in range(n_draws)]
    return np.mean(shares), np.std(shares) / np.sqrt(n_draws)


def test_at_the_budget_expected_accuracy_is_the_target_by_simulation(cancer):
    X, S, y, model = cancer
    found = noise_budget(model, X, y, 0.88, X_std=S)
    assert found.is_exact
    mean, error = simulated(model, X, y, found.multiple * S)
    assert abs(mean - 0.88) < 4 * error
    assert simulated(model, X, y, 0.5 * found.multiple * S)[0] > 0.88
    assert float(found) == found.multiple
    assert found.plain_accuracy == model.score(X, y)


def test_budgets_scale_with_the_noise_and_fall_with_the_target(cancer):
    X, S, y, model = cancer
    one = noise_budget(model, X, y, 0.85, X_std=S).multiple
    assert noise_budget(model, X, y, 0.85, X_std=2 * S).multiple == pytest.approx(one / 2)
    assert noise_budget(model, X, y, 0.9, X_std=S).multiple < one
    factors = np.array([np.diag(row) for row in S])
    assert noise_budget(model, X, y, 0.85, X_factor=factors).multiple == pytest.approx(one)


def test_by_draws_it_agrees_with_the_formula(cancer):
    X, S, y, model = cancer

    class Opaque(GaussianNB):
        """The same model, whose inside is not looked at."""

        def predict(self, X):
            return model.predict(X)

    opaque = Opaque().fit(X, y)
    exact, drawn = noise_budget(model, X, y, 0.88, X_std=S), noise_budget(opaque, X, y, 0.88, X_std=S, n_draws=20)
    assert not drawn.is_exact
    assert drawn.multiple == pytest.approx(exact.multiple, rel=0.1)
    assert drawn.method == "20 draws"


def test_several_classes_by_draws():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    found = noise_budget(model, X, y, 0.9, GaussianNoise(0.2), n_draws=30)
    mean, error = simulated(model, X, y, found.multiple * 0.2)
    assert abs(mean - 0.9) < 5 * error + 0.005


def test_the_ends_of_the_scale(cancer):
    X, S, y, model = cancer
    assert noise_budget(model, X, y, 1.0, X_std=S).multiple == 0
    assert noise_budget(model, X, y, 0.3, X_std=S).multiple == np.inf
    assert noise_budget(model, X, y, 0.9, X_std=0 * S).multiple == np.inf


@pytest.mark.parametrize(("factor", "word"), [(0.2, "Little"), (2.0, "Something"), (6.0, "Much")])
def test_what_is_to_gain_follows_the_flip_rate(cancer, factor, word):
    X, S, _, model = cancer
    found = what_is_to_gain(model, X, X_std=factor * S)
    rng = np.random.default_rng(0)
    flips = [np.mean(model.predict(X + factor * S * rng.normal(size=X.shape)) != model.predict(X)) for _ in range(200)]
    assert found.flip_rate == pytest.approx(np.mean(flips), abs=0.01)
    assert found.verdict.startswith(word)
    assert f"{100 * found.flip_rate:.1f} %" in str(found)
    assert found.standard_error == 0
    expected = 0 if found.flip_rate < 0.05 else 1 if found.flip_rate <= 0.15 else 2
    assert ["Little", "Something", "Much"][expected] == word
    assert found.points == [(-2.0, 1.0), (-6.0, 3.0), (4.3, 12.0)][expected]
    assert "{:+.1f} to {:+.1f} points".format(*found.points) in found.verdict
    assert "how fragile the model is, not how well it fits" in found.verdict
    assert "splines" not in found.verdict
    assert np.isnan(found.linear_log_loss)
    assert not found.is_nonlinear_advised


def test_what_is_to_gain_of_several_classes_is_drawn_and_has_an_error():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    found = what_is_to_gain(model, X, noise=0.4)
    rng = np.random.default_rng(0)
    flips = [np.mean(model.predict(X + 0.4 * rng.normal(size=X.shape)) != model.predict(X)) for _ in range(300)]
    assert 0 < found.standard_error < 0.01
    assert found.flip_rate == pytest.approx(np.mean(flips), abs=5 * found.standard_error)


@pytest.fixture
def curved(rng):
    """Rows whose classes are told by a curve."""
    X = rng.normal(size=(300, 3)) * [1.0, 100.0, 0.01]
    y = np.where(X[:, 0] ** 2 + X[:, 1] / 100 + 0.5 * rng.normal(size=300) > 1, "b", "a")
    return X, y


def test_a_model_that_is_not_linear_is_advised_where_splines_are_clearly_better(curved, cancer):
    X, y = curved
    found = what_is_to_gain(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y), X, noise=0.01, y=y)
    assert found.is_nonlinear_advised
    assert found.linear_log_loss - found.spline_log_loss > 2 * found.difference_error > 0
    assert "splines fit clearly better" in found.verdict
    assert "NoiseAwareClassifier() or NoiseCopies(HistGradientBoostingClassifier())" in found.verdict
    assert "splines" in found._repr_html_()
    X, S, y, model = cancer
    linear = what_is_to_gain(model, X, X_std=S, y=y)
    assert not linear.is_nonlinear_advised
    assert "splines fit no better than a linear model" in linear.verdict
    assert "NoiseCopies" not in linear.verdict
    assert linear == what_is_to_gain(model, X, X_std=S, y=y)  # the same folds each time


@pytest.mark.parametrize("errors_apart", [1.9, 2.1])
def test_the_comparison_is_paired_by_rows_of_which_it_takes_some(errors_apart, curved, monkeypatch, rng):
    X, y = curved
    common, apart = rng.normal(size=(2, 200))
    error = np.std(apart, ddof=1) / np.sqrt(200)
    losses, asked = iter([common + apart - apart.mean() + errors_apart * error, common]), []
    monkeypatch.setattr(budgets, "COMPARED", 200)
    monkeypatch.setattr(budgets, "_log_losses", lambda step, rows, *rest: (asked.append(rows), next(losses))[1])
    found = what_is_to_gain(LogisticRegression().fit(X, y), X, noise=0.01, y=y)
    assert found.difference_error == pytest.approx(error)
    assert found.linear_log_loss - found.spline_log_loss == pytest.approx(errors_apart * error)
    assert found.is_nonlinear_advised == (errors_apart > 2)
    assert [len(np.unique(rows, axis=0)) for rows in asked] == [200, 200]


def test_frames_with_holes_are_compared(curved):
    X, y = curved
    X = pd.DataFrame(X, columns=list("abc")).mask(np.random.default_rng(1).uniform(size=X.shape) < 0.05)
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(X, y)
    found = what_is_to_gain(model, X, X_std=X.notna() * 0.01, y=pd.Series(y))
    assert found.is_nonlinear_advised


def test_what_cannot_be_compared_is_said(curved):
    X, y = curved
    few = what_is_to_gain(LogisticRegression().fit(X, y), X[:2], noise=0.01, y=["a", "b"])
    assert "were not compared: 3 folds need 3 rows" in few.verdict
    thin = sparse.csr_array(X)
    assert (
        "were not compared: X is sparse"
        in what_is_to_gain(LogisticRegression().fit(thin, y), thin, noise=1, y=y).verdict
    )
    table = pd.DataFrame(X, columns=list("abc")).assign(key=np.where(X[:, 0] > 0, "u", "v"))
    coded = ColumnTransformer([("key", OneHotEncoder(), ["key"])], remainder=StandardScaler())
    S = pd.DataFrame(np.full(X.shape, 0.01), columns=list("abc"))
    model = make_pipeline(coded, LogisticRegression()).fit(table, y)
    found = what_is_to_gain(model, table, X_std=S, y=y)
    assert "were not compared: the model takes categories" in found.verdict
    assert np.isnan(found.spline_log_loss)
    with pytest.raises(ValueError, match=r"what_is_to_gain\(model, X, y\): y must hold one of the classes"):
        what_is_to_gain(model, table, X_std=S, y=np.arange(300))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target_accuracy": 0.0}, "target_accuracy=0.0"),
        ({"target_accuracy": 90}, "target_accuracy=90"),
        ({"n_draws": 0}, "n_draws=0"),
        ({"y": [7] * 569}, "must hold one of the classes"),
        ({"X_std": None}, "states no noise"),
        ({"X_std": np.ones(10)}, "X_std has 10 rows, X has 569"),
    ],
)
def test_questions_that_make_no_sense_are_refused(cancer, change, text):
    X, S, y, model = cancer
    asked = {"y": y, "target_accuracy": 0.9, "X_std": S} | change
    with pytest.raises(ValueError, match=text):
        noise_budget(model, X, **asked)


def test_advice_does_not_contradict_itself(rng):
    X = rng.normal(size=(400, 2))
    ring, corners = (X**2).sum(axis=1) > 1.2, X[:, 0] * X[:, 1] > 0
    said = str(what_is_to_gain(LogisticRegression().fit(X, ring), X, noise=0.01, y=ring))
    assert "use a model that is not linear" in said
    assert "will do" not in said
    said = str(what_is_to_gain(LogisticRegression().fit(X, corners), X, noise=0.01, y=corners))
    assert "neither" in said
    assert "will do" not in said
