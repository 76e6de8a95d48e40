"""The perceptron against deleted features: its steps, its regret, and what its losses prove."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog
from scipy.stats import beta
from sklearn.base import clone

from holdfast import FeatureDeletionPerceptron
from holdfast._core import compiled
from holdfast.uncertainty.deletion_loss import DeletionLoss

VALUES = np.array([1.0, 3.0, 2.0, 1.0])


def stream(m, rng, norm=2, noise=0.15, n=4):
    """Rows within the unit ball of a norm, some of them with the wrong label."""
    y = rng.choice([-1, 1], size=m)
    X = y[:, None] * rng.uniform(0, 1, size=n) + rng.uniform(-0.7, 0.7, size=(m, n))
    X /= np.maximum(np.linalg.norm(X, ord=norm, axis=1, keepdims=True), 1.0)
    return X, np.where(rng.uniform(size=m) < noise, -y, y)


def vertices(values, budget, adversary):
    """All that may be deleted: whole features, and for a relaxed adversary a fraction of one more."""
    whole = np.array(list(product((0.0, 1.0), repeat=len(values))))
    whole = whole[whole @ values <= budget + 1e-12]
    if adversary == "exact":
        return whole
    rest = budget - whole @ values
    more = [d + np.eye(len(values))[j] * r / values[j] for d, r in zip(whole, rest, strict=True)
            for j in np.flatnonzero((d == 0) & (values > r))]  # fmt: skip
    return np.concatenate([whole, more]) if more else whole


def best_in_hindsight(X, y, values, budget, margin, bound, adversary):
    """The least mean loss in the cube, a linear program over all that may be deleted."""
    (m, n), left = X.shape, 1.0 - vertices(values, budget, adversary)
    a = (y[:, None, None] * X[:, None] * left).reshape(-1, n)
    row = np.repeat(np.arange(m), len(left))
    slack = sparse.csr_array((np.ones(len(row)), (np.arange(len(row)), row)))
    A = sparse.hstack([-a, -y[row, None], -slack])
    asked = np.tile(margin * (left @ values) / (values.sum() - budget), m)
    cost = np.append(np.zeros(n + 1), np.full(m, 1 / m))
    return linprog(cost, A_ub=A, b_ub=-asked, bounds=[(-bound, bound)] * (n + 1) + [(0, None)] * m).fun


@pytest.mark.parametrize("adversary", ["relaxed", "exact"])
@pytest.mark.parametrize(("values", "budget"), [(np.ones(4), 1.0), (np.ones(4), 1.5), (VALUES, 3.0)])
@pytest.mark.parametrize(("norm", "order"), [(2, 2), ("inf", np.inf), (1, 1)])
def test_mean_loss_is_within_the_regret_bound_of_the_best_in_hindsight(adversary, values, budget, norm, order):
    settings = {"margin": 0.3, "bound": 2.0, "adversary": adversary}
    for m in (10, 150):
        X, y = stream(m, np.random.default_rng(m), order)
        model = FeatureDeletionPerceptron(budget, values, norm=norm, radius=1.0, random_state=0, **settings).fit(X, y)
        best = best_in_hindsight(X, y, values, budget, **settings)
        assert model.mean_loss_[0] <= best + model.regret_bound_
        assert model.mean_loss_[0] >= 0


def test_regret_bounds_are_those_of_the_theorem():
    X, y = stream(50, np.random.default_rng(0))
    X[0] /= np.abs(X[0]).sum()
    published = {2: 3 * np.sqrt(2 * 5 / 50), "inf": 3 * 5 / np.sqrt(50), 1: 3 * np.sqrt(2 * 5 / 50)}
    for norm, expected in published.items():
        model = FeatureDeletionPerceptron(bound=3.0, norm=norm, radius=1.0).fit(X[:1].repeat(50, axis=0), y)
        assert_allclose(model.regret_bound_, expected)


@pytest.mark.parametrize("adversary", ["relaxed", "exact"])
def test_adversarial_stream_stays_within_the_regret_bound(adversary):
    """Each row points against the hypothesis, so that every row has a loss, and only b and half of the rows can be served."""
    rng, m = np.random.default_rng(1), 120
    settings = {"margin": 0.2, "bound": 1.0, "adversary": adversary}
    model = FeatureDeletionPerceptron(2.0, VALUES, radius=1.0, horizon=m, **settings)
    rows, labels = [], []
    for i in range(m):
        w = model.stream_["W"][0] + 1e-3 * rng.normal(size=4) if i else rng.normal(size=4)
        y = rng.choice([-1, 1])
        rows.append(-y * w / np.linalg.norm(w))
        labels.append(y)
        model.partial_fit(rows[-1:], labels[-1:], classes=[-1, 1])
    best = best_in_hindsight(np.array(rows), np.array(labels), VALUES, 2.0, **settings)
    assert model.mean_loss_[0] > best
    assert model.mean_loss_[0] <= best + model.regret_bound_
    assert_allclose(model.regret_bound_, np.sqrt(2 * 5 / m))


@pytest.mark.parametrize("horizon", [1, 7, 1000])
def test_regret_stays_bounded_where_the_horizon_was_wrong(horizon):
    X, y = stream(150, np.random.default_rng(2))
    settings = {"margin": 0.3, "bound": 1.0, "adversary": "relaxed"}
    model = FeatureDeletionPerceptron(3.0, VALUES, radius=1.0, horizon=horizon, shuffle=False, **settings).fit(X, y)
    known = np.sqrt(2 * 5 / 150)
    assert known < model.regret_bound_ < 4 * known
    assert model.mean_loss_[0] <= best_in_hindsight(X, y, VALUES, 3.0, **settings) + model.regret_bound_
    ends = np.array([horizon * 2 ** max(np.ceil(np.log2((t + 1) / horizon)), 0) for t in range(150)])
    steps = np.sqrt(5 / (2 * ends))
    assert_allclose(model.regret_bound_, (2.5 * (1 / steps[0] + np.sum(4 * np.diff(1 / steps))) + np.sum(steps)) / 150)


@pytest.mark.parametrize("margin", [0.1, 4.0])
@pytest.mark.parametrize("adversary", ["relaxed", "exact"])
def test_model_is_the_mean_of_the_hypotheses_before_each_row(adversary, margin):
    """A small margin, so that deletions pay, and a large one, so that weights reach the bound."""
    X, y = stream(40, np.random.default_rng(3))
    found = FeatureDeletionPerceptron(
        3.0, VALUES, margin=margin, bound=0.7, radius=1.0, adversary=adversary, shuffle=False
    ).fit(X, y)
    left = 1.0 - vertices(VALUES, 3.0, adversary)
    w, b, before, losses, deletes = np.zeros(4), 0.0, [], [], False
    step = 0.7 * np.sqrt(5 / 80)
    for x, label in zip(X, y, strict=True):
        before.append(np.append(w, b))
        deficits = margin * (left @ VALUES) / 4.0 - label * (b + left @ (w * x))
        worst = left[np.argmax(deficits)]
        losses.append(max(deficits.max(), 0.0))
        if deficits.max() > 0:
            deletes |= np.any(worst < 1)
            w = np.clip(w + label * step * worst * x, -0.7, 0.7)
            b = np.clip(b + label * step, -0.7, 0.7)
    assert_allclose(np.append(found.coef_, found.intercept_), np.mean(before, axis=0), atol=1e-13)
    assert_allclose(found.mean_loss_, np.mean(losses))
    assert_allclose(found.stream_["W"][0], w, atol=1e-13)
    assert deletes == (margin < 1)
    assert np.any(np.abs(w) == 0.7) == (margin > 1)


def test_hypotheses_stay_in_the_cube():
    X, y = stream(200, np.random.default_rng(4))
    model = FeatureDeletionPerceptron(1.0, bound=0.05, radius=1.0, horizon=5)
    for start in range(0, 200, 10):
        model.partial_fit(X[start : start + 10], y[start : start + 10], classes=[-1, 1])
        for part in (model.coef_, model.intercept_, model.stream_["W"], model.stream_["b"]):
            assert np.all(np.abs(part) <= 0.05)
    assert np.any(np.abs(model.stream_["W"]) == 0.05)


def same(a, b):
    assert_allclose(a.coef_, b.coef_, atol=1e-13)
    assert_allclose(a.intercept_, b.intercept_, atol=1e-13)
    assert_allclose(a.mean_loss_, b.mean_loss_)
    assert a.regret_bound_ == pytest.approx(b.regret_bound_)


@pytest.mark.parametrize(("norm", "order"), [(2, 2), ("inf", np.inf), (1, 1)])
def test_parts_and_sparse_rows_make_the_same_model(norm, order):
    X, y = stream(90, np.random.default_rng(5))
    X[np.abs(X) < 0.2] = 0.0
    X /= np.linalg.norm(X, ord=order, axis=1).max()
    settings = {"radius": 1.0, "horizon": 20, "shuffle": False, "norm": norm}
    whole = FeatureDeletionPerceptron(3.0, VALUES, **settings).fit(X, y)
    parts = FeatureDeletionPerceptron(3.0, VALUES, **settings)
    for start, stop in ((0, 1), (1, 50), (50, 90)):
        parts.partial_fit(X[start:stop], y[start:stop], classes=[-1, 1])
    same(parts, whole)
    same(FeatureDeletionPerceptron(3.0, VALUES, **settings).fit(sparse.csr_array(X), y), whole)
    same(parts.fit(X, y), whole)
    largest = FeatureDeletionPerceptron(3.0, VALUES, norm=norm).fit(sparse.csr_array(X), y).radius_
    assert_allclose(largest, 1.0)


@pytest.mark.parametrize("adversary", ["relaxed", pytest.param("exact", marks=pytest.mark.slow)])
def test_compiled_steps_are_the_same(adversary, monkeypatch, several_classes):
    X, y = several_classes((40, 30, 50), 6)
    X[np.abs(X) < 0.3] = 0.0
    model = FeatureDeletionPerceptron(4.0, [1, 3, 2, 0, 1, 2], adversary=adversary, shuffle=False)
    plain = clone(model).fit(X, y)
    monkeypatch.setattr(compiled, "STEPS_WORTHWHILE", 0)
    for rows in (X, sparse.csr_array(X)):
        same(clone(model).fit(rows, y), plain)


def test_entries_stored_in_parts_are_added(several_classes):
    X, y = several_classes((40, 30), 3)
    model = FeatureDeletionPerceptron(1.0, shuffle=False).fit(X, y)
    twice = sparse.csr_array(
        (np.repeat(X.ravel() / 2, 2), np.tile(np.repeat(np.arange(3), 2), len(X)), 6 * np.arange(len(X) + 1)), X.shape
    )
    same(FeatureDeletionPerceptron(1.0, shuffle=False).fit(twice, y), model)
    assert twice.nnz == 2 * X.size


def test_classes_are_learned_one_against_the_rest(several_classes):
    X, y = several_classes((30, 20, 25), 3)
    X /= np.linalg.norm(X, axis=1).max()
    settings = {"radius": 1.0, "shuffle": False}
    model = FeatureDeletionPerceptron(0.5, **settings).fit(X, y)
    for k in range(3):
        alone = FeatureDeletionPerceptron(0.5, **settings).fit(X, y == k)
        assert_allclose(model.coef_[k], alone.coef_[0], atol=1e-13)
        assert_allclose(model.mean_loss_[k], alone.mean_loss_[0])
    parts = [FeatureDeletionPerceptron(0.5, **settings).fit(X, y == k).online_bound(0.1 / 3) for k in range(3)]
    assert_allclose(model.online_bound(0.1).excess, sum(part.excess for part in parts))


def test_doubling_margin_and_bound_doubles_the_model():
    X, y = stream(60, np.random.default_rng(6))
    one, two = (FeatureDeletionPerceptron(1.0, margin=0.1 * k, bound=k, random_state=0).fit(X, y) for k in (1.0, 2.0))
    assert_allclose(two.coef_, 2 * one.coef_)
    assert_allclose(two.mean_loss_, 2 * one.mean_loss_)


def test_permuting_features_permutes_the_model():
    X, y = stream(60, np.random.default_rng(7))
    order = [2, 0, 3, 1]
    plain = FeatureDeletionPerceptron(3.0, VALUES, random_state=0).fit(X, y)
    permuted = FeatureDeletionPerceptron(3.0, VALUES[order], random_state=0).fit(X[:, order], y)
    assert_allclose(permuted.coef_, plain.coef_[:, order], atol=1e-13)


def test_training_for_deletion_pays_where_the_best_feature_is_deleted():
    rng = np.random.default_rng(8)
    y = rng.choice([-1, 1], size=3000)
    X = np.column_stack([y, *(y * (rng.uniform(size=3000) < 0.8) * 0.5 for _ in range(6))]) / np.sqrt(3)
    gone = X * np.array([0, 1, 1, 1, 1, 1, 1])
    plain, robust = (FeatureDeletionPerceptron(N, margin=0.5, random_state=0).fit(X, y) for N in (0, 2))
    deficit = {}
    for name, model in (("plain", plain), ("robust", robust)):
        loss = DeletionLoss.of(None, 2, 0.5, "exact", 7, "f")
        deficit[name] = loss.deficits(y[:, None] * model.coef_ * X, y * model.intercept_)[0].clip(0).mean()
    assert deficit["robust"] < 0.8 * deficit["plain"]
    assert robust.score(gone, y) >= plain.score(gone, y)


def test_rows_beyond_the_radius_are_said_to_void_the_proof():
    X, y = stream(40, np.random.default_rng(9))
    model = FeatureDeletionPerceptron(1.0, radius=0.5)
    with pytest.warns(UserWarning, match=r"rows reach 1, beyond 0.5; regret_bound_ is inf.* state a larger radius"):
        model.fit(X, y)
    assert model.regret_bound_ == np.inf
    with pytest.warns(UserWarning, match="nothing is proved, for rows reach 1"):
        assert model.online_bound().risk == np.inf
    parts = FeatureDeletionPerceptron(1.0).partial_fit(0.5 * X, y, classes=[-1, 1])
    assert np.isfinite(parts.regret_bound_)
    with pytest.warns(UserWarning, match="rows reach 1"):
        parts.partial_fit(X, y)
    assert parts.partial_fit(X, y).regret_bound_ == np.inf


def test_radius_taken_from_the_rows_proves_no_risk():
    X, y = stream(40, np.random.default_rng(10))
    model = FeatureDeletionPerceptron(1.0).fit(3 * X, y)
    assert_allclose(model.radius_, 3.0)
    assert_allclose(model.regret_bound_, np.sqrt(10 * 5 / 40))
    with pytest.warns(UserWarning, match="the radius was taken from the rows"):
        found = model.online_bound()
    assert found.risk == found.excess == np.inf


def test_online_bounds_are_those_of_the_corollary():
    X, y = stream(5000, np.random.default_rng(11), 1, noise=0.0)
    model = FeatureDeletionPerceptron(1.0, margin=0.3, bound=1.5, norm=1, radius=1.0).fit(X, y)
    psi, m = 0.3 * 4 / 3, 5000
    found = model.online_bound(0.1)
    risk = (model.mean_loss_[0] + (psi + 3.0) * np.sqrt(np.log(10) / (2 * m))) / 0.3
    assert found.risk == pytest.approx(min(risk, 1.0))
    assert risk < 1
    sharper = 1.5 * np.sqrt(2 * 5 / m) + (3.0 + psi) * np.sqrt(2 * np.log(20) / m)
    assert_allclose(found.excess, sharper)
    assert sharper <= (4.5 + psi) * np.sqrt(2 * (5 + np.log(20)) / m)


@pytest.mark.parametrize(("norm", "order"), [(1, 1), (2, 2), (np.inf, np.inf)])
def test_losses_lie_in_the_range_that_the_bound_assumes(norm, order):
    """The largest loss: all weights at the bound, against a row of the largest l1 norm that its own norm allows."""
    x = {1: [1.0, 0, 0, 0], 2: [0.5] * 4, np.inf: [1.0] * 4}[norm]
    X, y = stream(50, np.random.default_rng(12), order)
    model = FeatureDeletionPerceptron(1.0, norm=norm, radius=1.0, bound=2.0).fit(X, y)
    loss = DeletionLoss.of(None, 1.0, 0.1, "exact", 4, "f")
    largest = loss.deficits(-2.0 * np.array([x]), np.array([-2.0]))[0][0]
    doubt = model.online_bound(0.1).excess - model.regret_bound_
    assert_allclose(doubt, largest * np.sqrt(2 * np.log(20) / 50))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 4.0}, r"budget=4.0\): must be below .* 4 \(n_features=4\)"),
        ({"norm": "l3"}, r"norm='l3'\): give 1, 2 or 'inf'"),
        ({"radius": 0.0}, r"radius=0.0\): must be a finite number > 0"),
        ({"horizon": 0}, r"horizon=0\): must be an integer >= 1"),
        ({"bound": -1.0}, r"bound=-1.0\): must be"),
        ({"adversary": "exact", "values": [1.0, 1.3, 2.0, 1.0]}, "values are not multiples"),
        ({"missing": "ignore"}, r"missing='ignore'\): give 'raise' or 'delete'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        FeatureDeletionPerceptron(**settings).fit(*stream(20, np.random.default_rng(13)))


def test_refused_part_changes_nothing():
    X, y = stream(20, np.random.default_rng(14))
    model = FeatureDeletionPerceptron(1.0).partial_fit(X, y, classes=[-1, 1])
    coef = model.coef_.copy()
    with pytest.raises(ValueError, match=r"y contains \[7\]"):
        model.partial_fit(X, np.full(20, 7))
    with pytest.raises(ValueError, match="earlier calls had"):
        model.partial_fit(X, y, classes=[0, 1])
    assert_array_equal(model.coef_, coef)
    assert model.n_seen_ == 20


@pytest.mark.slow
def test_online_bound_is_violated_no_more_often_than_promised():
    rng, delta, times, wrong = np.random.default_rng(15), 0.5, 1000, 0
    loss = DeletionLoss.of(None, 1.0, 0.5, "relaxed", 4, "f")
    draw = np.random.default_rng(16)
    direction = draw.uniform(0, 1, size=4)

    def rows(m):
        y = rng.choice([-1, 1], size=m)
        X = y[:, None] * direction + rng.uniform(-0.7, 0.7, size=(m, 4))
        return X / np.maximum(np.abs(X).sum(axis=1, keepdims=True), 1.0), y

    X_new, y_new = rows(4000)
    for _ in range(times):
        model = FeatureDeletionPerceptron(1.0, margin=0.5, norm=1, radius=1.0, shuffle=False).fit(*rows(60))
        psi = loss.largest_margin
        promised = model.mean_loss_[0] + (psi + 2.0) * np.sqrt(np.log(1 / delta) / 120)
        deficit, _ = loss.deficits(y_new[:, None] * model.coef_ * X_new, y_new * model.intercept_)
        expected = np.maximum(deficit, 0).mean()
        assert np.mean(deficit >= 0.5) <= expected / 0.5
        wrong += expected > promised
    assert beta.ppf(0.01, max(wrong, 1e-9), times - wrong + 1) <= delta


def test_settings_changed_after_the_fit_prove_nothing_else(several_classes):
    X, y = several_classes((60, 60), 4)
    X = X / (1.1 * np.abs(X).sum(axis=1).max())
    model = FeatureDeletionPerceptron(1, radius=1.0, norm=1, random_state=0).fit(X, y)
    proved = model.online_bound()
    assert model.set_params(margin=5.0, radius=0.1).online_bound() == proved
    with pytest.raises(ValueError, match=r"margin, radius changed since the first call"):
        model.partial_fit(X, y)
    taken = FeatureDeletionPerceptron(1, norm=1, random_state=0).fit(X, y).set_params(radius=1.0)
    with pytest.warns(UserWarning, match="the radius was taken from the rows"):
        assert np.isinf(taken.online_bound().risk)
