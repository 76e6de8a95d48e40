"""Bounds on the error under deletion."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import rel_entr
from scipy.stats import beta, binom
from sklearn.linear_model import LogisticRegression

from holdfast.estimators import generalization_bound
from holdfast.estimators.deletion_bounds import kl_inverse
from holdfast.uncertainty.deletion_loss import DeletionLoss

VALUES = np.array([1.0, 1.0, 2.0, 0.5, 1.5])
SETTINGS = {"values": VALUES, "budget": 1.5, "margin": 0.3, "bound": 1.0}


def draw(m, rng, noise=0.1):
    y = rng.choice([-1, 1], size=m)
    X = np.clip(y[:, None] * 0.4 + rng.uniform(-0.7, 0.7, size=(m, 5)), -1, 1)
    return X, np.where(rng.uniform(size=m) < noise, -y, y)


@pytest.fixture
def data():
    return draw(2000, np.random.default_rng(0))


def test_kl_inverse_is_the_inverse_and_below_its_relaxation():
    rng = np.random.default_rng(1)
    for q, B in zip(rng.uniform(0, 0.9, size=200), rng.exponential(0.1, size=200), strict=True):
        p = kl_inverse(q, B)
        assert q <= p <= min(q + np.sqrt(2 * q * B) + 2 * B, 1.0) + 1e-12
        assert_allclose(rel_entr(q, p) + rel_entr(1 - q, 1 - p), B, rtol=1e-6, atol=1e-12)
    assert kl_inverse(0.3, 0.0) == pytest.approx(0.3, abs=1e-7)
    assert kl_inverse(0.3, np.inf) == kl_inverse(1.0, 0.1) == kl_inverse(0.0, np.inf) == 1.0
    assert_allclose(kl_inverse(0.0, 0.2), kl_inverse(1e-15, 0.2))


def test_published_is_never_below_tight(data):
    X, y = data
    rng = np.random.default_rng(2)
    for _ in range(50):
        m, w = rng.integers(1, 400), rng.uniform(-1, 1, size=5)
        settings = SETTINGS | {"margin": rng.choice([0.01, 0.3, 5.0, 100.0]), "delta": rng.uniform(0.01, 0.5)}
        tight, printed = (
            generalization_bound(w, X[:m], y[:m], variant=variant, **settings) for variant in ("tight", "published")
        )
        assert tight.complexity <= printed.complexity
        assert tight.bound <= printed.bound
        for found in (tight, printed):
            assert found.empirical == tight.empirical <= found.bound <= found.relaxed + 1e-12 <= 1 + 1e-12


def test_published_is_the_formula(data):
    X, y = data
    found = generalization_bound(np.full(5, 0.5), X, y, variant="published", **SETTINGS)
    P = VALUES.sum() - 1.5
    printed = np.log(2000 / 0.05) + np.sum(np.log(4 * P / (0.3 * VALUES)))
    assert_allclose(found.complexity, printed / 1999)


def test_wide_margins_add_no_negative_terms(data):
    X, y = data
    wide = SETTINGS | {"margin": 1e4}
    printed = generalization_bound(np.zeros(5), X, y, variant="published", **wide)
    tight = generalization_bound(np.zeros(5), X, y, **wide)
    assert_allclose(printed.complexity, np.log(2000 / 0.05) / 1999)
    assert_allclose(tight.complexity, np.log(2 * np.sqrt(2000) / 0.05) / 2000)


def test_empirical_loss_is_the_share_of_deficits_and_sparse_rows_agree(data):
    X, y = data
    w = np.array([0.9, -0.1, 0.6, 0.4, 0.8])
    deficit, _ = DeletionLoss.of(VALUES, 1.5, 0.3, "relaxed", 5, "f").deficits(y[:, None] * w * X, np.zeros(len(y)))
    found = generalization_bound(w, X, y, **SETTINGS)
    assert found.empirical == np.mean(deficit >= 0)
    assert found == generalization_bound(w, sparse.csr_array(X), y, **SETTINGS)


def test_a_margin_met_exactly_counts_as_a_loss():
    # a deficit of 0 in exact arithmetic, -4e-17 as computed
    w, X = np.array([0.1, 0.2, 0.3]), np.ones((4, 3))
    found = generalization_bound(w, X, np.ones(4), budget=0, margin=0.6, bound=1.0)
    assert found.empirical == 1.0


def test_bound_falls_with_rows_and_delta_and_rises_with_the_loss(data):
    X, y = data
    w = np.full(5, 0.7)
    twice = generalization_bound(w, np.tile(X, (2, 1)), np.tile(y, 2), **SETTINGS)
    once = generalization_bound(w, X, y, **SETTINGS)
    assert twice.empirical == once.empirical
    assert twice.bound < once.bound
    assert once.bound < generalization_bound(w, X, y, delta=1e-4, **SETTINGS).bound
    flipped = np.where(np.arange(len(y)) < 100, -y, y)
    worse = generalization_bound(w, X, flipped, **SETTINGS)
    assert worse.empirical > once.empirical
    assert worse.complexity == once.complexity
    assert worse.bound > once.bound


def test_half_the_margin_pays_for_the_box(data):
    X, y = data
    rng = np.random.default_rng(3)
    P = VALUES.sum() - 1.5
    for _ in range(50):
        w, margin = rng.uniform(-1, 1, size=5), rng.uniform(0.05, 1.0)
        moved = w + rng.uniform(-1, 1, size=5) * margin * VALUES / (2 * P)
        none, half, full = (_deficit(v, X, y, g) for v, g in ((w, 1e-12), (moved, margin / 2), (w, margin)))
        assert np.all((none < 0) | (half >= -1e-9))
        assert np.all((half < 0) | (full >= -1e-9))


def _deficit(w, X, y, margin):
    loss = DeletionLoss.of(VALUES, 1.5, margin, "relaxed", 5, "f")
    return loss.deficits(y[:, None] * w * X, np.zeros(len(y)))[0]


def test_training_at_twice_the_margin_bounds_the_loss(data):
    X, y = data
    w = np.array([0.9, 0.5, 0.6, 0.4, 0.8])
    assert np.all((_deficit(w, X, y, 0.3) >= 0) <= np.maximum(_deficit(w, X, y, 0.6), 0) / 0.3 + 1e-12)


def test_intercept_and_free_features_share_the_margin(data):
    X, y = data
    values = np.array([1.0, 0.0, 2.0, 0.5, 1.5])
    model = LogisticRegression(C=0.01).fit(X, y)
    settings = SETTINGS | {"values": values, "intercept_bound": 0.5}
    found = generalization_bound(model, X, y, **settings)
    share, free = 0.3 * 4 / 6, 0.3 / 6
    half = np.append(np.where(values > 0, share * values / 3.5, free), free) / 2
    centre, side = np.append(model.coef_, model.intercept_), np.array([1.0] * 5 + [0.5])
    lengths = np.minimum(side, centre + half) - np.maximum(-side, centre - half)
    assert_allclose(found.complexity, (np.log(2 * side / lengths).sum() + np.log(2 * np.sqrt(2000) / 0.05)) / 2000)
    assert_allclose(half[values.size] * 2 + np.max(half[:5] * 2 * (values == 0)) + share, 0.3)


def test_half_the_margin_pays_for_the_boxes_of_intercept_and_free_features(data):
    X, y = (rows[:300] for rows in data)
    values, rng = np.array([1.0, 0.0, 2.0, 0.5, 1.5]), np.random.default_rng(5)

    def deficit(theta, margin):
        loss = DeletionLoss.of(values, 1.5, margin, "relaxed", 5, "f")
        return loss.deficits(y[:, None] * theta[:5] * X, y * theta[5])[0]

    for _ in range(50):
        theta, margin = rng.uniform(-1, 1, size=6), rng.uniform(0.05, 1.0)
        half = margin / 2 / 6 * np.append(np.where(values > 0, 4 * values / 3.5, 1.0), 1.0)
        moved = theta + half * rng.choice([-1, 1], size=6)
        none, between, full = (deficit(t, g) for t, g in ((theta, 1e-12), (moved, margin / 2), (theta, margin)))
        assert np.all((none < 0) | (between >= -1e-9))
        assert np.all((between < 0) | (full >= -1e-9))


def test_constant_of_the_tight_bound_covers_the_sum_that_it_stands_for():
    for m in range(1, 400):
        assert np.sum(binom.pmf(np.arange(m + 1), m, np.arange(m + 1) / m)) <= 2 * np.sqrt(m)


def test_scaling_features_and_weights_changes_nothing(data):
    X, y = data
    w = np.full(5, 0.5)
    plain = generalization_bound(w, X, y, **SETTINGS)
    scaled = generalization_bound(w / 4, 4 * X, y, feature_bound=4.0, **(SETTINGS | {"bound": 0.25}))
    assert_allclose([scaled.bound, scaled.empirical], [plain.bound, plain.empirical])
    wider = generalization_bound(w, X, y, feature_bound=[1, 1, 1, 3, 1], **SETTINGS)
    assert wider.complexity > plain.complexity


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bound": 0.4}, r"bound=0.4\): a weight is 0.5"),
        ({"feature_bound": 0.2}, "feature 0 reaches 1, feature_bound is 0.2"),
        ({"delta": 1.0}, r"delta=1.0\): must lie between"),
        ({"variant": "printed"}, "variant='printed'"),
        ({"variant": "published", "intercept_bound": 1.0}, "for positive values and no intercept only"),
        ({"margin": 0.0}, "margin must be > 0"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(data, changes, message):
    with pytest.raises(ValueError, match=message):
        generalization_bound(np.full(5, 0.5), *data, **(SETTINGS | changes))


def test_unstated_intercept_and_unknown_labels_are_refused(data):
    X, y = data
    with pytest.raises(ValueError, match=r"intercept_bound=None\): the intercept is"):
        generalization_bound(LogisticRegression(C=0.01).fit(X, y), X, y, **SETTINGS)
    with pytest.raises(ValueError, match=r"y contains \[0\]"):
        generalization_bound(np.full(5, 0.5), X, (y > 0).astype(int), **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize(("margin", "m"), [(0.6, 25), (1.2, 100), (3.0, 30)])
def test_bound_is_violated_no_more_often_than_promised(margin, m):
    """At delta = 0.5, so that violations can be seen at all, for weights that are chosen by the rows."""
    rng, delta, times, wrong = np.random.default_rng(4), 0.5, 1000, 0
    settings = {"values": VALUES, "budget": 1.5, "bound": 1.0}
    X_new, y_new = draw(4000, rng, 0.25)
    for _ in range(times):
        X, y = draw(m, rng, 0.25)
        tried = rng.uniform(-0.2, 1, size=(20, 5))
        losses = [np.mean(np.maximum(_deficit(w, X, y, margin), 0)) for w in tried]
        w = tried[np.argmin(losses)]
        found = generalization_bound(w, X, y, margin=margin, delta=delta, **settings)
        wrong += np.mean(_deficit(w, X_new, y_new, 1e-12) >= 0) > found.bound
    assert beta.ppf(0.01, max(wrong, 1e-9), times - wrong + 1) <= delta
