"""Averages of ramps and waves over Gaussian noise, against quadrature and draws; what pipelines make of them."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import roots_legendre
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import StandardScaler

from holdfast import (
    ExpectedFeatures,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    RobustLinearClassifier,
    flip_probability,
    make_uncertain_pipeline,
)
from holdfast.features.averaged import Averaged, Features, Ramp, Wave
from holdfast.features.row_noise import RowNoise
from holdfast.uncertainty.affine_map import AffineMap

WIDTHS = np.array([0.7, 0.2, 3.0])
RAMP = Ramp(WIDTHS, np.array([True, True, True]))
curves = pytest.mark.parametrize("curve", [RAMP, Wave()], ids=["ramp", "wave"])
NODES, WEIGHTS = roots_legendre(14)


def one(curve, k):
    """The k-th of several curves alone, as a function of an array."""
    return Ramp(WIDTHS[[k]], np.array([True])) if isinstance(curve, Ramp) else curve


def integral(f, kinks):
    """Return the mean of f(Z) by quadrature between the places where f is not smooth, and narrow parts."""
    cuts = np.unique(np.clip([*np.linspace(-12, 12, 150), *kinks], -12, 12))
    half, middle = 0.5 * np.diff(cuts)[:, None], 0.5 * (cuts[1:] + cuts[:-1])[:, None]
    z = middle + half * NODES
    return float(np.sum(half * WEIGHTS * f(z) * np.exp(-0.5 * z * z)) / np.sqrt(2 * np.pi))


def by_quadrature(curve, k, a, t, b):
    """Return mean, slope and rest of the k-th curve, averaged over deviation b already, at a + tZ."""
    alone = one(curve, k)

    def psi(z):
        x = (a + t * z).reshape(-1, 1)
        return (alone.value(x) if b is None else alone.mean(x, np.full_like(x, b))).reshape(z.shape)

    bends = np.zeros(1) if b is None else np.linspace(-8, 8, 41) * b / t  # averaging rounds kinks off
    kinks = np.ravel(np.add.outer([-a / t, (WIDTHS[k] - a) / t], bends)) if isinstance(curve, Ramp) else []
    mean = integral(psi, kinks)
    slope = integral(lambda z: z * psi(z), kinks) / t
    return mean, slope, np.sqrt(integral(lambda z: np.square(psi(z) - mean - slope * t * z), kinks))


@curves
@pytest.mark.parametrize("b", [None, 1e-6, 0.4, 2.5])
@pytest.mark.parametrize("t", [1e-3, 0.3, 5.0])
def test_means_slopes_and_rests_are_those_of_quadrature(curve, t, b):
    A = np.array([[-1.3, 0.0, 0.05], [0.4, 0.2, 1.1], [0.7, 6.0, 2.9]])
    found = curve.averages(A, np.full((3, 3), t), None if b is None else np.full((3, 3), b))
    wanted = np.array([[by_quadrature(curve, k, a, t, b) for k, a in enumerate(row)] for row in A])
    assert_allclose(found.mean, wanted[:, :, 0], rtol=1e-9, atol=1e-10)
    assert_allclose(found.slope, wanted[:, :, 1], rtol=1e-7, atol=1e-9)
    # the square of a rest is a small difference of numbers of about t^2
    assert_allclose(np.square(found.rest), np.square(wanted[:, :, 2]), rtol=1e-9, atol=1e-14 * (1 + t * t))


@curves
def test_no_noise_is_the_curve_itself_to_the_last_digit(curve, rng):
    a, zero = np.concatenate([rng.normal(size=(20, 3)), [[0, 0, 0], WIDTHS, -WIDTHS]]), np.zeros((23, 3))
    assert_array_equal(curve.mean(a, zero), curve.value(a))
    found = curve.averages(a, zero, None)
    assert_array_equal(found.mean, curve.value(a))
    assert_array_equal(found.slope, curve.slope(a))
    assert_array_equal(found.rest, 0 * a)
    # what is averaged already, and exact from there on
    b = rng.uniform(0.1, 2, size=a.shape)
    found = curve.averages(a, zero, b)
    assert_array_equal(found.mean, curve.mean(a, b))
    assert_array_equal(found.rest, 0 * a)
    h = 1e-6
    assert_allclose(found.slope, (curve.mean(a + h, b) - curve.mean(a - h, b)) / (2 * h), atol=1e-8)


@curves
def test_tiny_noise_is_next_to_none_and_nothing_overflows(curve, rng):
    a = rng.normal(size=(9, 3)) + 0.013
    for t in (1e-300, 1e-160, 1e-12, 1e160, 1e300):
        for b in (None, np.full_like(a, 1e-200), np.full_like(a, 0.5)):
            found = curve.averages(a, np.full_like(a, t), b)
            assert all(np.all(np.isfinite(part)) for part in found)
            assert np.all(found.rest >= 0)
            if t < 1:
                plain = curve.averages(a, np.zeros_like(a), b)
                assert_allclose(found.mean, plain.mean, atol=1e-11)
                assert_allclose(found.slope, plain.slope, atol=1e-7)
                assert_allclose(found.rest, 0, atol=1e-7)


def test_huge_noise_leaves_the_middle_of_a_ramp_and_nothing_of_a_wave(rng):
    a, t = rng.normal(size=(5, 3)), np.full((5, 3), 1e9)
    for b, times in ((None, 1), (np.ones((5, 3)), 1), (t, 1), (None, 1e6), (None, 1e7), (None, 1e291)):
        ramp, wave = RAMP.averages(a, times * t, b), Wave().averages(a, times * t, b)
        assert_allclose(ramp.mean, np.broadcast_to(0.5 * WIDTHS, (5, 3)), rtol=1e-6)
        assert_array_equal(wave.mean, 0 * a)
        assert_array_equal(wave.slope, 0 * a)
        assert np.all(ramp.rest <= 0.5 * WIDTHS)
    # a coin between the ends of a ramp, of which the noise's sign tells 2 / pi, and a wave of any phase
    found, rest = RAMP.averages(a, 1e-6 * t, None), WIDTHS * np.sqrt(1 / 4 - 1 / (2 * np.pi))
    assert_allclose(found.rest, np.broadcast_to(rest, (5, 3)), rtol=1e-2)
    assert_allclose(1e3 * found.slope, np.broadcast_to(WIDTHS / np.sqrt(2 * np.pi), (5, 3)), rtol=1e-2)
    assert_allclose(Wave().averages(a, t, None).rest ** 2, np.full((5, 3), 0.5), rtol=1e-9)


def test_all_but_infinite_noise_leaves_nothing_of_a_row(rng):
    X = rng.normal(size=(30, 3)) * [1, 1e-3, 50]
    features = ExpectedFeatures(n_knots=3, n_components=4, random_state=0).fit(X)
    far = [features.transform(X, X_std=size * np.ones_like(X)) for size in (1e9, 1e15, 1e17, 1e149)]
    for found in far:
        assert_allclose(found, np.broadcast_to(far[0][0], found.shape), atol=1e-6)


@curves
def test_noise_in_two_parts_moves_the_mean_as_all_of_it(curve, rng):
    a, t, b = rng.normal(size=(9, 3)), rng.uniform(0.01, 3, size=(9, 3)), rng.uniform(0.01, 3, size=(9, 3))
    assert_allclose(curve.averages(a, t, b).mean, curve.mean(a, np.hypot(t, b)), rtol=1e-13, atol=1e-15)


@curves
def test_bounds_of_a_curve_are_what_a_grid_finds(curve, rng):
    low = np.concatenate([3 * rng.normal(size=(30, 3)), [WIDTHS, [np.pi, 0, 2 * np.pi]]])
    high = low + rng.uniform(size=low.shape) * np.repeat([0, 0.3, 3, 9], 8)[:, None]
    least, largest = curve.bounds(low, high)
    values = np.array([curve.value(low + s * (high - low)) for s in np.linspace(0, 1, 1001)])
    assert np.all(values.min(axis=0) >= least - 1e-12)
    assert np.all(values.max(axis=0) <= largest + 1e-12)
    assert_allclose(values.min(axis=0), least, atol=1e-2)
    assert_allclose(values.max(axis=0), largest, atol=1e-2)


def effect_of(d, rng):
    """Ramps of each column and of mixtures of them, and waves, around a centre."""
    mixed, widths = rng.normal(size=(3, d)) / np.sqrt(d), rng.uniform(0.2, 2, size=3)
    own = sparse.csr_array(np.repeat(np.eye(d), 2, axis=0))
    starts = rng.normal(size=d)
    shifts = -np.column_stack([starts, starts + 0.5]).ravel()
    ramps = Ramp(np.full(2 * d, 0.5), np.tile([False, True], d))
    return Averaged(
        [
            Features(AffineMap(own, shifts), ramps, rng.uniform(0.5, 2, size=2 * d)),
            Features(AffineMap(mixed, rng.normal(size=3)), Ramp(widths, np.ones(3, dtype=bool)), rng.normal(size=3)),
            Features(AffineMap(rng.normal(size=(4, d)) / np.sqrt(d), rng.uniform(0, 6, size=4)), Wave(), 0.3),
        ],
        rng.normal(size=d),
    )


def noises(n, d, rng):
    """Noise of each kind: none, each entry's own, singular, many causes, both, and huge."""
    std = rng.uniform(0, 1, size=(n, d)) * (rng.uniform(size=(n, d)) < 0.7)
    factor = rng.normal(size=(n, d, 1))
    return {
        "none": RowNoise.none((n, d)),
        "own": RowNoise(std),
        "singular": RowNoise(np.zeros((n, d)), factor),
        "many": RowNoise(np.zeros((n, d)), rng.normal(size=(n, d, d + 2)) / np.sqrt(d)),
        "both": RowNoise(std, 0.5 * factor),
        "huge": RowNoise(1e4 * std, 1e4 * factor),
    }


def forms_of(effect, X):
    return np.hstack([part.forms(X - effect.centre) for part in effect.parts])


@pytest.mark.parametrize("d", [1, 3, 20])
def test_means_variances_and_covariances_with_the_errors_are_those_of_draws(d):
    rng = np.random.default_rng(d)
    effect, n, n_draws = effect_of(d, rng), 2, 20_000
    X = rng.normal(size=(n, d))
    reach = np.concatenate(
        [np.broadcast_to(np.abs(part.gain) * size, len(part.forms.offset)) for part, size in reaches(effect)]
    )
    for name, noise in noises(n, d, rng).items():
        means, left = effect.averages(X, noise)
        assert_allclose(effect.means([X], noise)[0], means, rtol=1e-12, atol=1e-13, err_msg=name)
        for i in range(n):
            errors = noise.take(np.full(n_draws, i)).drawn(rng)
            drawn = effect.transform(X[i] + errors)

            def assert_near(found, wanted, one, most, name=name):
                """Within 5 deviations of a mean of draws of `one`, and what nobody has drawn yet."""
                assert np.all(np.abs(found - wanted) <= 5 * one.std(axis=0) / np.sqrt(n_draws) + 20 * most / n_draws), (
                    name
                )

            assert_near(drawn.mean(axis=0), means[i], drawn, reach)
            squares = np.square(drawn - means[i])
            assert_near(squares.mean(axis=0), np.square(left.deviations[i]), squares, reach**2)
            products = (drawn - means[i]) * errors[:, [0]]
            most = reach * np.abs(errors[:, 0]).max()
            assert_near(products.mean(axis=0), left.factor[i] @ noise.causes[i, 0], products, most)


def reaches(effect):
    return [(part, 2.0 if isinstance(part.curve, Wave) else part.curve.widths) for part in effect.parts]


@pytest.mark.parametrize("d", range(1, 21))
def test_features_of_a_row_are_the_averages_of_their_forms(d):
    """Along a form noise is one normal number: quadrature in one dimension, whatever the correlations."""
    rng = np.random.default_rng(100 + d)
    effect, n = effect_of(d, rng), 2
    X = rng.normal(size=(n, d))
    V = np.vstack(
        [p.forms.matrix.toarray() if sparse.issparse(p.forms.matrix) else p.forms.matrix for p in effect.parts]
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    waves = slice(-4, None)
    for noise in noises(n, d, rng).values():
        means, left = effect.averages(X, noise)
        C = noise.causes @ noise.causes.transpose(0, 2, 1)
        t = np.sqrt(np.einsum("kj,nji,ki->nk", V, C, V))
        assert_allclose(np.hstack([part.deviations(noise) for part in effect.parts]), t, rtol=1e-9, atol=1e-7)
        a = forms_of(effect, X)
        if t.max() < 5:
            around = 0.3 * np.cos(a[:, waves, None] + t[:, waves, None] * nodes)
            assert_allclose(means[:, waves], around @ weights / weights.sum(), atol=1e-12)
            second = np.square(around) @ weights / weights.sum() - np.square(means[:, waves])
            assert_allclose(np.square(left.deviations[:, waves]), second, atol=1e-9)
        k = rng.integers(2 * d)
        for i in np.flatnonzero(t[:, k] > 0):
            place, size, gain = a[i, k], t[i, k], effect.parts[0].gain[k]
            kinks = [-place / size, (0.5 - place) / size]
            ramp = partial(drawn_ramp, place, size, gain)
            assert means[i, k] == pytest.approx(integral(ramp, kinks), rel=1e-9, abs=1e-10)
            second = integral(lambda z, ramp=ramp, m=means[i, k]: np.square(ramp(z) - m), kinks)
            # a small difference of numbers of about t^2
            assert left.deviations[i, k] ** 2 == pytest.approx(second, rel=1e-9, abs=1e-15 * (1e5 + size**2))


def drawn_ramp(place, size, gain, z):
    return gain * np.clip(place + size * z, 0, 0.5)


@pytest.mark.parametrize("kind", ["both", "splines", "fourier"])
def test_all_ways_to_state_the_same_noise_agree(kind, rng):
    X = rng.normal(size=(40, 4))
    features = ExpectedFeatures(kind, n_knots=5, n_components=20, random_state=0).fit(X)
    F = rng.normal(size=(40, 4, 2))
    S = rng.uniform(0, 2, size=(40, 4))
    by_factor = features.transform(X, X_factor=F)
    assert_allclose(features.transform(X, X_cov=F @ F.transpose(0, 2, 1)), by_factor, atol=1e-8)
    by_std = features.transform(X, X_std=S)
    for name, value in (
        ("X_cov", S[:, :, None] ** 2 * np.eye(4)),
        ("X_factor", S[:, :, None] * np.eye(4)),
        ("X_std", sparse.csr_array(S)),
    ):
        assert_allclose(features.transform(X, **{name: value}), by_std, atol=1e-12)
    # correlations count where a feature is made of several columns
    alone = np.sqrt(np.einsum("njr,njr->nj", F, F))
    assert np.allclose(features.transform(X, X_std=alone), by_factor, atol=1e-6) == (kind == "splines")


@pytest.mark.parametrize("kind", ["both", "splines", "fourier"])
def test_zero_noise_is_the_plain_features_to_the_last_digit(kind, rng):
    X = rng.normal(size=(30, 3)) * [1, 100, 1e-3]
    features = ExpectedFeatures(kind, n_components=20, random_state=0).fit(X)
    plain = features.transform(X)
    for noise in ({"X_std": 0 * X}, {"X_cov": np.zeros((30, 3, 3))}, {"X_factor": np.zeros((30, 3, 1))}):
        assert_array_equal(features.transform(X, **noise), plain)
    means, left = features.uncertainty_effect(3).averages(X, RowNoise.none(X.shape))
    assert_array_equal(means, plain)
    assert not np.any(left.deviations)


def test_means_take_memory_of_rows_times_features(rng):
    n, d, D = 400, 20, 600
    X, F = rng.normal(size=(n, d)), rng.normal(size=(n, d, d))
    effect = ExpectedFeatures(n_components=D, random_state=0).fit(X).uncertainty_effect(d)
    noise = RowNoise(np.ones((n, d)), F)
    tracemalloc.start()
    found = effect.means([X], noise)[0]
    one = found.nbytes  # factors of the features would be 40 of these
    assert tracemalloc.get_traced_memory()[1] < 8 * one
    tracemalloc.reset_peak()
    averages = effect.averages(X, noise, noise)
    assert tracemalloc.get_traced_memory()[1] < 25 * one
    tracemalloc.stop()
    assert averages[0].shape == found.shape


def test_intervals_of_features_are_as_wide_as_what_a_grid_finds(rng):
    X = rng.normal(size=(50, 2)) * [1, 30]
    effect = ExpectedFeatures(n_knots=4, n_components=12, gamma=2.0, random_state=0).fit(X).uncertainty_effect(2)
    reach = rng.uniform(size=(6, 2)) * np.array([0.05, 0.1, 0.3, 0.5, 1, 2])[:, None] * [1, 30]
    lower, upper = X[:6] - reach, X[:6] + 0.5 * reach
    low, high = effect.bounds(X[:6], lower, upper)
    t = np.linspace(0, 1, 161)
    grid = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    for i in range(6):
        found = effect.transform(lower[i] + grid * (upper[i] - lower[i]))
        assert np.all(found >= low[i] - 1e-12)
        assert np.all(found <= high[i] + 1e-12)
        assert_allclose(found.min(axis=0), low[i], atol=2e-2)
        assert_allclose(found.max(axis=0), high[i], atol=2e-2)


def test_to_first_order_noise_follows_the_slopes(rng):
    effect, X = effect_of(3, rng), rng.normal(size=(5, 3))
    noise, h = RowNoise(rng.uniform(size=(5, 3)), rng.normal(size=(5, 3, 2))), 1e-7
    found = effect.linearised(X, noise)
    for cause, factor in zip(np.moveaxis(noise.causes, 2, 0), np.moveaxis(found.factor, 2, 0), strict=True):
        assert_allclose(
            factor, (effect.transform(X + h * cause) - effect.transform(X - h * cause)) / (2 * h), atol=1e-6
        )
    assert not np.any(found.std)


@pytest.fixture
def rings():
    """Two classes by their distance from 0, with errors that differ by row."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    y = np.where(np.hypot(*X.T) > 1.1, "far", "near")
    return X, y, rng.uniform(0.05, 0.3, size=X.shape)


@pytest.mark.parametrize("given", ["X_std", "X_cov"])
def test_a_pipeline_trains_on_the_means_and_their_noise(rings, given):
    X, y, S = rings
    noise = {given: S if given == "X_std" else S[:, :, None] ** 2 * np.eye(2)}
    features = ExpectedFeatures("splines", n_knots=4)
    pipe = make_uncertain_pipeline(features, GaussianRobustClassifier(alpha=1e-2)).fit(X, y, **noise)
    by_hand = ExpectedFeatures("splines", n_knots=4).fit(X)
    means, left = by_hand.uncertainty_effect(2).averages(X, RowNoise(S))
    direct = GaussianRobustClassifier(alpha=1e-2).fit(means, y, X_factor=np.asarray(left.parts))
    assert pipe[-1].objective_ == pytest.approx(direct.objective_, rel=1e-5)
    wanted = direct.predict_proba(means, X_factor=np.asarray(left.parts))
    assert_allclose(pipe.predict_proba(X, **noise), wanted, atol=2e-2)
    assert pipe.score(X, y, **noise) > 0.8


def test_certificates_through_features_hold_against_attacks(rings):
    X, y, S = rings
    bounds = {"X_lower": X - 0.2 * S, "X_upper": X + 0.2 * S}
    pipe = make_uncertain_pipeline(
        ExpectedFeatures("splines", n_knots=4), RobustLinearClassifier(IntervalBox(), alpha=1e-2)
    )
    pipe.fit(X, y, **bounds)
    certified = pipe.certify(X, **bounds)
    assert 0.3 < np.mean(certified) < 1
    rng, said = np.random.default_rng(0), pipe.predict(X)
    for corner in [*rng.integers(0, 2, size=(10, *X.shape)), *rng.uniform(size=(10, *X.shape))]:
        moved = bounds["X_lower"] + corner * (bounds["X_upper"] - bounds["X_lower"])
        assert np.all((pipe.predict(moved) == said)[certified])


SPLINES = ExpectedFeatures("splines", n_knots=4)
WAVES = ExpectedFeatures("fourier", n_components=15, gamma=0.5, random_state=0)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "steps",
    [
        (SPLINES,),
        (StandardScaler(), WAVES, StandardScaler()),
        (FeatureUnion([("splines", SPLINES), ("waves", WAVES), ("same", PCA())]),),
        (ColumnTransformer([("splines", SPLINES, [0])], remainder=WAVES),),
    ],
    ids=["alone", "scaled", "union", "columns"],
)
def test_noise_is_carried_through_features_among_other_steps(rings, steps):
    """Their means and moments let a linear model after them say how likely draws are to change its predictions."""
    X, y, S = rings
    pipe = make_uncertain_pipeline(*map(clone, steps), LogisticRegression()).fit(X, y)
    found = flip_probability(pipe, X, GaussianNoise(), X_std=S)
    rng, n_draws = np.random.default_rng(1), 400
    draws = X + S * rng.normal(size=(n_draws, *X.shape))
    said = pipe.predict(draws.reshape(-1, 2)).reshape(n_draws, -1)
    assert np.mean(np.abs(found - np.mean(said != pipe.predict(X), axis=0))) < 0.03


def test_a_classifier_after_features_is_trained_on_what_they_follow_of_common_causes(rings):
    X, y, S = rings
    pipe = make_uncertain_pipeline(FeatureUnion([("a", SPLINES), ("b", WAVES)]), GaussianRobustClassifier(alpha=0.1))
    both = clone(pipe).fit(X, y, X_std=S)
    effects = [clone(one).fit(X).uncertainty_effect(2) for one in (SPLINES, WAVES)]
    parts = [effect.averages(X, RowNoise(np.zeros_like(S), S[:, :, None] * np.eye(2))) for effect in effects]
    means = np.hstack([mean for mean, _ in parts])
    own = np.hstack([left.std for _, left in parts])
    factor = np.concatenate(
        [np.concatenate([left.factor for _, left in parts], axis=1), own[:, :, None] * np.eye(own.shape[1])], axis=2
    )
    direct = GaussianRobustClassifier(alpha=0.1).fit(means, y, X_factor=factor)
    assert both[-1].objective_ == pytest.approx(direct.objective_, rel=1e-5)
