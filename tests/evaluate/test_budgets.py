import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import GaussianNoise
from holdfast.datasets import load_breast_cancer_errors
from holdfast.evaluate import noise_budget, what_is_to_gain


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


def test_what_is_to_gain_of_several_classes_is_drawn_and_has_an_error():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    found = what_is_to_gain(model, X, noise=0.4)
    rng = np.random.default_rng(0)
    flips = [np.mean(model.predict(X + 0.4 * rng.normal(size=X.shape)) != model.predict(X)) for _ in range(300)]
    assert 0 < found.standard_error < 0.01
    assert found.flip_rate == pytest.approx(np.mean(flips), abs=5 * found.standard_error)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target_accuracy": 0.0}, "target_accuracy=0.0"),
        ({"target_accuracy": 90}, "target_accuracy=90"),
        ({"n_draws": 0}, "n_draws=0"),
        ({"y": [7] * 569}, "must hold one of the classes"),
        ({"X_std": None}, "states no noise"),
        ({"X_std": np.ones(10)}, "X_std has shape"),
    ],
)
def test_questions_that_make_no_sense_are_refused(cancer, change, text):
    X, S, y, model = cancer
    asked = {"y": y, "target_accuracy": 0.9, "X_std": S} | change
    with pytest.raises(ValueError, match=text):
        noise_budget(model, X, **asked)
