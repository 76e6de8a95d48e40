"""partial_fit: any parts of the rows give what one pass gives, and nothing is claimed that was not proved."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._core import compiled
from holdfast.solvers import SGD

ROUNDING = 1e-11
TOLD = SGD(eta0=0.3, bound=2.0)


@pytest.fixture
def data(two_classes):
    return two_classes(90, 4, separation=0.7)


def _stream(model, X, y, cuts, classes=(-1, 1), **metadata):
    parts = np.split(np.arange(X.shape[0]), cuts)
    for part in parts:
        own = {name: value[part] for name, value in metadata.items()}
        model.partial_fit(X[part], y[part], classes=classes, **own)
        classes = None
    return model


def _one_pass(model, X, y, **metadata):
    once = clone(model).set_params(solver=SGD(eta0=0.3, bound=2.0, epochs=1, shuffle=False))
    with pytest.warns(match="stochastic"):
        return once.fit(X, y, **metadata)


def _assert_same(one, other):
    assert_allclose(one.coef_, other.coef_, rtol=0, atol=ROUNDING)
    assert_allclose(one.intercept_, other.intercept_, rtol=0, atol=ROUNDING)


@pytest.mark.thin(11)
@pytest.mark.parametrize("worthwhile", [0, np.inf], ids=["compiled", "plain"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("cuts", [[], [1], [40, 41, 80]])
def test_parts_give_what_one_pass_gives(cuts, make, dtype, worthwhile, monkeypatch, data):
    monkeypatch.setattr(compiled, "STEPS_WORTHWHILE", worthwhile)
    X, y = make(data[0].astype(dtype)), data[1]
    model = GaussianRobustClassifier(0.5, loss="hinge", solver=TOLD)
    _assert_same(_stream(model, X, y, cuts), _one_pass(model, X, y))


@pytest.mark.thin(3)
@pytest.mark.parametrize("noise", [0.5, GaussianNoise(std=[0.1, 0.5, 1.0, 0.0])], ids=repr)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_parts_give_what_one_pass_gives_under_any_noise_of_features(noise, fit_intercept, loss, data):
    model = GaussianRobustClassifier(noise, loss=loss, solver=TOLD, alpha=0.0, fit_intercept=fit_intercept)
    once = clone(model).set_params(solver=SGD(eta0=0.3, bound=2.0, epochs=1, shuffle=False))
    with pytest.warns():
        once.fit(*data)
    _assert_same(_stream(model, *data, [30, 31]), once)


def test_parts_give_what_one_pass_gives_with_the_noise_of_each_row(data, rng):
    S = rng.uniform(0, 1, data[0].shape)
    model = GaussianRobustClassifier(0.7, loss="two_point", solver=TOLD)
    _assert_same(_stream(model, *data, [10, 50], X_std=S), _one_pass(model, *data, X_std=S))


def test_a_stream_goes_on_after_pickling(data):
    model = GaussianRobustClassifier(0.5, loss="hinge", solver=SGD())
    whole = _stream(clone(model), *data, [45])
    half = clone(model).partial_fit(data[0][:45], data[1][:45], classes=[-1, 1])
    _assert_same(pickle.loads(pickle.dumps(half)).partial_fit(data[0][45:], data[1][45:]), whole)
    assert all(isinstance(value, np.ndarray | float | int) for state in half.stream_ for value in state.values())


def test_the_ridge_has_its_share_of_the_rows_so_far(data):
    """The one pass of a plain loop: at row m the ridge weighs alpha over the weight of the rows up to m."""
    X, y = data
    alpha, sigma, weights = 0.8, 0.5, np.linspace(0.5, 1.5, len(y))
    model = GaussianRobustClassifier(
        sigma, loss="two_point", alpha=alpha, fit_intercept=False, solver=SGD(0.2, bound=9.0)
    )
    _stream(model, X, y, [7, 50], sample_weight=weights)
    w, mean = np.zeros(4), np.zeros(4)
    for t in range(1, len(y) + 1):
        x, sign, c = X[t - 1], y[t - 1], weights[t - 1]
        u, s = 1 - sign * (w @ x), sigma * np.linalg.norm(w)
        root = np.hypot(u, s)
        gradient = -0.5 * (1 + u / root) * sign * x + (0.5 * s / root * sigma * w / np.linalg.norm(w) if s > 0 else 0)
        w = w - 0.2 / np.sqrt(t) * (c * gradient + alpha / weights[:t].sum() * w)
        mean = mean + (w - mean) * 2 / (t + 1)
    assert_allclose(model.coef_[0], mean, rtol=0, atol=ROUNDING)


@pytest.mark.slow
def test_a_stream_comes_close_to_the_optimum_without_tuning(draw_classes, rng, loss):
    X, y = draw_classes(rng, 4000, 3, separation=0.6)
    model = GaussianRobustClassifier(0.6, loss=loss, alpha=1e-3)
    best = clone(model).fit(X, y)
    _stream(model, X, y, range(100, 4000, 100))
    problem = best._problems(X, y, None, {})[0]
    value = problem.value_and_gradient(np.append(model.coef_[0], model.intercept_[0]))[0]
    assert value <= best.objective_ * 1.02


def test_nothing_is_claimed(data):
    model = _stream(GaussianRobustClassifier(0.5), *data, [45])
    assert (model.gap_, model.lower_bound_) == (np.inf, -np.inf)
    assert np.isnan(model.objective_)
    assert not model.collapsed_
    assert model.solution_["status"] == "streamed"
    assert "proves nothing" in model.solution_["advice"]
    assert set(model.predict(data[0])) <= {-1, 1}
    assert model.predict_proba(data[0]).shape == (90, 2)


def test_fit_starts_afresh_and_so_does_partial_fit_after_it(data):
    fresh = GaussianRobustClassifier(0.5).fit(*data)
    model = _stream(GaussianRobustClassifier(0.5), *data, [45]).fit(*data)
    assert np.array_equal(model.coef_, fresh.coef_)
    assert not hasattr(model, "stream_")
    _assert_same(model.partial_fit(*data), _stream(GaussianRobustClassifier(0.5), *data, []))


def test_a_part_may_lack_a_class(data):
    X, y = data
    order = np.argsort(y, kind="stable")
    model = _stream(GaussianRobustClassifier(0.5, loss="hinge"), X[order], y[order], [20, 40])
    assert np.all(np.isfinite(model.coef_))


def test_rows_of_weight_zero_change_nothing(data, rng):
    kept = rng.uniform(size=90) < 0.6
    model = GaussianRobustClassifier(0.5, loss="hinge", solver=TOLD)
    whole = _stream(clone(model), *data, [30], sample_weight=kept.astype(float))
    _assert_same(whole, _stream(clone(model), data[0][kept], data[1][kept], []))


def test_weights_of_classes_multiply_those_of_rows(data):
    model = GaussianRobustClassifier(0.5, loss="hinge", solver=TOLD)
    by_class = _stream(clone(model).set_params(class_weight={1: 3.0}), *data, [30])
    by_row = _stream(clone(model), *data, [30], sample_weight=np.where(data[1] > 0, 3.0, 1.0))
    _assert_same(by_class, by_row)


def test_labels_may_be_words(data):
    words = np.where(data[1] > 0, "yes", "no")
    model = _stream(GaussianRobustClassifier(0.5, solver=TOLD), data[0], words, [30], classes=["yes", "no"])
    _assert_same(model, _stream(GaussianRobustClassifier(0.5, solver=TOLD), *data, [30]))
    assert model.classes_.tolist() == ["no", "yes"]


# Several classes


@pytest.fixture
def three_classes(rng):
    y = rng.permutation(np.repeat(["a", "b", "c"], 40))
    centres = {"a": [1.5, 0], "b": [-1, 1.2], "c": [-1, -1.2]}
    return rng.normal(size=(120, 2)) + np.array([centres[label] for label in y]), y


@pytest.mark.parametrize("loss", ["hinge", "two_point", "logistic"])
def test_parts_of_three_classes_give_what_one_pass_gives(loss, three_classes):
    X, y = three_classes
    solver = SGD(eta0=0.3, bound=5.0)
    model = GaussianRobustClassifier(0.6, loss=loss, alpha=0.0, solver=solver)
    for start, stop in ((0, 1), (1, 50), (50, 120)):
        model.partial_fit(X[start:stop], y[start:stop], classes=["c", "b", "a"])
    once = GaussianRobustClassifier(0.6, loss=loss, alpha=0.0, solver=SGD(0.3, epochs=1, bound=5.0, shuffle=False))
    with pytest.warns(match="Certified gap"):
        once.fit(X, y)
    assert_allclose(model.coef_, once.coef_, rtol=0, atol=ROUNDING)
    assert_allclose(model.intercept_, once.intercept_, rtol=0, atol=ROUNDING)
    assert set(model.predict(X)) == {"a", "b", "c"}


@pytest.mark.parametrize("one_class", [False, True], ids=["M-GURU", "M-GURU-S2"])
def test_steps_on_three_classes_approach_the_batch_optimum(one_class, three_classes):
    X, y = three_classes
    best = GaussianRobustClassifier(0.7, loss="hinge").fit(X, y)
    model = GaussianRobustClassifier(
        0.7, loss="hinge", solver=SGD(epochs=150, one_class_per_step=one_class), tol=1e-2, random_state=0
    ).fit(X, y)
    assert best.objective_ * (1 - 1e-9) <= model.objective_ <= best.objective_ * (1 + 1e-2)
    assert model.lower_bound_ <= best.objective_ * (1 + 1e-9)
    assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-12)


# Errors


def test_a_first_call_without_classes_is_refused(data):
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        GaussianRobustClassifier(0.5).partial_fit(*data)


def test_a_single_class_is_refused(data):
    with pytest.raises(ValueError, match="two classes"):
        GaussianRobustClassifier(0.5).partial_fit(*data, classes=[0])


def test_what_does_not_fit_earlier_parts_is_refused_and_changes_nothing(data):
    X, y = data
    model = _stream(GaussianRobustClassifier(0.5), X, y, [45])
    coef, state = model.coef_.copy(), pickle.dumps(model.stream_)
    for arguments, options, message in [
        ((X, y + 7), {}, r"y contains \[6.0, 8.0\], but classes is"),
        ((X[:, :3], y), {}, "3 features"),
        ((X, y), {"X_std": np.ones(X.shape)}, "earlier calls were without X_std"),
        ((X, y), {"classes": [1, 2]}, r"earlier calls had \[-1, 1\]"),
        ((X, y), {"sample_weight": -np.ones(90)}, "[Nn]egative"),
        ((np.full(X.shape, np.nan), y), {}, "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*arguments, **options)
    assert np.array_equal(model.coef_, coef)
    assert pickle.dumps(model.stream_) == state


def test_noise_of_rows_is_asked_for_again(data):
    model = GaussianRobustClassifier().partial_fit(*data, classes=[-1, 1], X_std=np.ones(data[0].shape))
    with pytest.raises(ValueError, match="earlier calls were with X_std"):
        model.partial_fit(*data)


def test_correlated_noise_is_refused(data):
    with pytest.raises(ValueError, match=r"There SGD takes noise that is independent by feature"):
        GaussianRobustClassifier(GaussianNoise(cov=np.eye(4))).partial_fit(*data, classes=[-1, 1])


def test_loss_that_needs_noise_is_refused_without_it(data):
    with pytest.raises(ValueError, match="without noise this loss is the plain hinge"):
        GaussianRobustClassifier(0.0, loss="hinge").partial_fit(*data, classes=[-1, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weight": "balanced"}, "does not know the weights of classes"),
        ({"solver": "newton"}, "a batch solver needs all rows at once"),
    ],
)
def test_settings_that_need_all_rows_leave_no_partial_fit(options, message, data):
    model = GaussianRobustClassifier(0.5, **options)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(*data, classes=[-1, 1])
    assert message in str(caught.value)
