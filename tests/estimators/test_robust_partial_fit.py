"""RobustLinearClassifier.partial_fit: parts give what one call gives, and nothing is claimed that was not proved."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier
from holdfast.solvers import StochasticProximal

ROUNDING = 1e-11
TOLD = StochasticProximal(eta0=0.3, batch_size=8)


@pytest.fixture
def data(two_classes):
    return two_classes(90, 4, separation=0.7)


@pytest.fixture(params=["none", "ball", "box", "intervals", "ellipsoids", "covariances", "noise", "both"])
def stated(request, data, rng):
    """A set, and what it asks of the rows."""
    X, S = data[0], rng.uniform(0, 0.5, size=(90, 4))
    factors = rng.normal(scale=0.2, size=(90, 4, 2))
    return {
        "none": (None, {}),
        "ball": (Ball(), {"X_radius": S[:, 0]}),
        "box": (Box(0.1), {}),
        "intervals": (IntervalBox(), {"X_lower": X - S, "X_upper": X + 2 * S}),
        "ellipsoids": (Ellipsoid(), {"X_std": S}),
        "covariances": (Ellipsoid(), {"X_cov": factors @ factors.transpose(0, 2, 1)}),
        "noise": (GaussianNoise(), {"X_std": S}),
        "both": (GaussianNoise() + Ball(0.1), {"X_std": S}),
    }[request.param]


def _stream(model, X, y, cuts, classes=(-1, 1), **metadata):
    for part in np.split(np.arange(X.shape[0]), cuts):
        own = {name: value[part] for name, value in metadata.items()}
        model.partial_fit(X[part], y[part], classes=classes, **own)
        classes = None
    return model


def _assert_same(one, other):
    assert_allclose(one.coef_, other.coef_, rtol=0, atol=ROUNDING)
    assert_allclose(one.intercept_, other.intercept_, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("penalty", ["l2", "l1", "box"])
def test_parts_of_whole_batches_give_what_one_call_gives(penalty, stated, data):
    model = RobustLinearClassifier(stated[0], penalty=penalty, solver=TOLD)
    whole = _stream(clone(model), *data, [], **stated[1])
    assert np.any(whole.coef_)
    _assert_same(_stream(clone(model), *data, [8, 40, 80], **stated[1]), whole)


@pytest.mark.thin(5)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_without_a_penalty_it_is_an_epoch_of_fit(make, dtype, stated, data):
    X, y = make(data[0].astype(np.float32).astype(dtype)), data[1]
    if "X_lower" in stated[1] and sparse.issparse(X):
        return  # intervals around entries that are not stored are refused
    model = RobustLinearClassifier(stated[0], penalty=None, solver=TOLD)
    once = clone(model).set_params(solver=StochasticProximal(epochs=1, eta0=0.3, batch_size=8, shuffle=False))
    with pytest.warns(ConvergenceWarning):
        once.fit(X, y, **stated[1])
    _assert_same(_stream(model, X, y, [16], **stated[1]), once)


def test_a_stream_goes_on_after_pickling_and_is_made_of_plain_values(data):
    model = RobustLinearClassifier(Box(0.1))
    whole = _stream(clone(model), *data, [45])
    half = clone(model).partial_fit(data[0][:45], data[1][:45], classes=[-1, 1])
    assert all(isinstance(value, np.ndarray | float | int) for state in half.stream_ for value in state.values())
    _assert_same(pickle.loads(pickle.dumps(half)).partial_fit(data[0][45:], data[1][45:]), whole)


@pytest.mark.thin(3)
@pytest.mark.parametrize(("penalty", "alpha"), [("l2", 300.0), ("l1", 60.0)])
@pytest.mark.parametrize("unit", [1.0, 40.0])
def test_a_stream_comes_close_to_the_optimum_without_tuning(unit, penalty, alpha, draw_classes, rng):
    """Rows that all weigh 40 ask for 40 times the penalty of those that weigh 1: its share must follow the weights."""
    X, y = draw_classes(rng, 3000, 3, separation=0.6)
    weights = unit * rng.uniform(0.5, 1.5, size=3000)
    model = RobustLinearClassifier(Ball(0.2), penalty=penalty, alpha=alpha * unit)
    best = clone(model).fit(X, y, sample_weight=weights)
    _stream(model, X, y, range(100, 3000, 100), sample_weight=weights)
    problem = best._problems(X, y, weights, {})[0]
    value = problem.value_and_gradient(np.append(model.coef_[0], model.intercept_[0]))[0]
    assert value <= best.objective_ * 1.01


def test_nothing_is_claimed(data):
    model = _stream(RobustLinearClassifier(Ball(0.1), loss="logistic"), *data, [45])
    assert (model.gap_, model.lower_bound_) == (np.inf, -np.inf)
    assert np.isnan(model.objective_)
    assert not model.collapsed_
    assert not hasattr(model, "proof_weights_")
    assert model.solution_["status"] == "streamed"
    assert "proves nothing" in model.solution_["advice"]
    assert model.predict_proba(data[0]).shape == (90, 2)
    assert model.certify(data[0]).dtype == bool


def test_fit_starts_afresh_and_so_does_partial_fit_after_it(data):
    fresh = RobustLinearClassifier(Ball(0.1)).fit(*data)
    model = _stream(RobustLinearClassifier(Ball(0.1)), *data, [45]).fit(*data)
    assert np.array_equal(model.coef_, fresh.coef_)
    assert not hasattr(model, "stream_")
    _assert_same(model.partial_fit(*data), _stream(RobustLinearClassifier(Ball(0.1)), *data, []))


def test_a_part_may_lack_a_class_and_rows_of_weight_zero_change_nothing(data):
    X, y = data
    order = np.argsort(y, kind="stable")
    kept = np.arange(90) % 3 > 0
    model = RobustLinearClassifier(Ball(0.1), solver=TOLD)
    assert np.all(np.isfinite(_stream(clone(model), X[order], y[order], [20, 40]).coef_))
    whole = _stream(clone(model), X, y, [24], sample_weight=kept.astype(float))
    _assert_same(whole, _stream(clone(model), X[kept], y[kept], []))


def test_several_classes_are_one_against_the_rest(several_classes):
    X, y = several_classes((40, 30, 20))
    model = RobustLinearClassifier(Ball(0.1), solver=TOLD).partial_fit(X, y, classes=[2, 1, 0])
    for k in range(3):
        alone = RobustLinearClassifier(Ball(0.1), solver=TOLD).partial_fit(X, y == k, classes=[False, True])
        assert_allclose(model.coef_[k], alone.coef_[0], atol=ROUNDING)
        assert_allclose(model.intercept_[k], alone.intercept_[0], atol=ROUNDING)
    assert set(model.predict(X)) == {0, 1, 2}


# Errors


def test_what_does_not_fit_earlier_parts_is_refused_and_changes_nothing(data):
    X, y = data
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        RobustLinearClassifier().partial_fit(X, y)
    model = _stream(RobustLinearClassifier(Ellipsoid()), X, y, [45], X_std=np.ones(X.shape))
    coef, state = model.coef_.copy(), pickle.dumps(model.stream_)
    for arguments, options, message in [
        ((X, y + 7), {"X_std": X}, r"y contains \[6.0, 8.0\], but classes is"),
        ((X[:, :3], y), {"X_std": X}, "3 features"),
        ((X, y), {}, "earlier calls were with X_std or X_cov"),
        ((X, y), {"X_std": np.ones(X.shape), "classes": [1, 2]}, r"earlier calls had \[-1, 1\]"),
        ((X, y), {"X_std": -np.ones(X.shape)}, "X_std"),
        ((X, y), {"X_radius": np.ones(90)}, "X_radius"),
        ((np.full(X.shape, np.nan), y), {"X_std": X}, "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*arguments, **options)
    with pytest.raises(ValueError, match="kappa=2"):
        model.set_params(kappa=2).partial_fit(X, y, X_std=np.ones(X.shape))
    with pytest.raises(ValueError, match=r"StochasticProximal\(batch_size=0\)"):
        model.set_params(kappa=1, solver=StochasticProximal(batch_size=0)).partial_fit(X, y, X_std=np.ones(X.shape))
    assert np.array_equal(model.coef_, coef)
    assert pickle.dumps(model.stream_) == state
    fresh = RobustLinearClassifier(Ball(0.1)).partial_fit(X, y, classes=[-1, 1])
    with pytest.raises(ValueError, match="earlier calls were without X_radius"):
        fresh.partial_fit(X, y, X_radius=np.ones(90))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weight": "balanced"}, "does not know the weights of classes"),
        ({"solver": "newton"}, "Give solver=None, 'stochastic_proximal' or StochasticProximal(...)"),
        ({"solver": "sgd"}, "has no partial_fit"),
    ],
)
def test_settings_that_need_all_rows_leave_no_partial_fit(options, message, data):
    model = RobustLinearClassifier(Ball(0.5), **options)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(*data, classes=[-1, 1])
    assert message in str(caught.value)
