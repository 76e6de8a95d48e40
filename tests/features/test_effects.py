"""What steps do to rows, intervals and noise, against brute force; affine maps against the operations they are made of."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from holdfast import Box, GaussianNoise, GaussianRobustClassifier, SpreadImputer, UncertainPipeline, certified_radius
from holdfast._certificates.rounded_map import RoundedMap
from holdfast._core.operations import Cast, Divide, Multiply, Select, Shift, as_float, as_fractions, stages
from holdfast.features import Affine, Effect, Monotone, RowNoise, teach_step
from holdfast.features.carrying import effects_of, together
from holdfast.features.curved import RbfValues, Waves
from holdfast.features.row_noise import side_by_side
from holdfast.uncertainty.affine_map import AffineMap

N = 6


@pytest.fixture
def map(rng):
    """A map of 5 features to 4 by all operations there are."""
    scaled = AffineMap.computed(2, Shift(rng.normal(size=2)), Divide(rng.uniform(0.5, 2.0, size=2)), Cast(np.float64))
    mixed = AffineMap(sparse.csr_array(rng.normal(size=(3, 3))), rng.normal(size=3))
    sides = AffineMap.beside([(scaled, np.array([4, 0])), (mixed, np.array([0, 2, 3]))], 5)
    last = AffineMap.computed(5, Multiply(rng.normal(size=5)), Select(np.array([0, 3, 1, 4]), 5))
    return last.after(sides)


def by_hand(map, rows):
    for operation in map.operations:
        rows = apply(operation, rows)
    return rows


def apply(operation, z):
    name = type(operation).__name__
    if name == "Beside":
        return np.hstack([by_hand(inner, z[:, chosen]) for inner, chosen in operation.parts])
    return {
        "Shift": lambda: z + operation.offset,
        "Divide": lambda: z / operation.divisor,
        "Multiply": lambda: z * operation.factor,
        "Product": lambda: z @ operation.matrix.T,
        "Select": lambda: z[:, operation.kept],
        "Cast": lambda: z,
    }[name]()


def test_a_map_is_what_its_operations_make_of_rows(map, rng):
    X = rng.normal(size=(N, 5))
    assert_allclose(map(X), by_hand(map, X), rtol=1e-12)
    assert map.shape == (4, 5)


def test_weights_are_pulled_back_through_all_operations(map, rng):
    X, W, b = rng.normal(size=(N, 5)), rng.normal(size=(2, 4)), rng.normal(size=2)
    found = RoundedMap(W, b).after(map)
    scores, errors = found(X)
    assert_allclose(scores, by_hand(map, X) @ W.T + b, rtol=1e-12)
    V, c = found.fractions()
    exact = as_fractions(X) @ V.T + c
    assert isinstance(exact[0, 0], Fraction)
    off = np.abs((as_fractions(scores) - exact).astype(float))
    assert np.all(off <= errors)
    assert np.all(errors < 1e-12)
    assert np.all(found.sizes >= np.abs(found.coef) * (1 - 1e-12))
    *_, (pulled, _) = stages(map.operations, W, b, as_float)
    assert_allclose(pulled, found.coef)


def test_coarse_arithmetic_anywhere_counts(rng):
    W, b, X = rng.normal(size=(1, 2)), np.zeros(1), rng.normal(size=(N, 2))
    fine = RoundedMap(W, b).after(AffineMap.identity(2))(X)[1]
    coarse = RoundedMap(W, b).after(AffineMap.computed(2, Cast(np.float32)))(X)[1]
    assert np.all(coarse > 1e6 * fine)


curved = pytest.mark.parametrize(
    "effect",
    [Waves(np.array([[2.0, -1.0], [0.3, 4.0], [0.0, 0.1]]), np.array([0.1, 3.0, -2.0])), RbfValues(np.eye(2), 0.7)],
    ids=["waves", "kernel"],
)


@curved
def test_intervals_are_as_wide_as_what_a_grid_finds(effect, rng):
    X = rng.normal(size=(3 * N, 2))
    widest = np.repeat([0.1, 0.5, 2.0], N)[:, None]  # from none to both of a crest and a trough
    lower, upper = X - widest * rng.uniform(size=X.shape), X + widest * rng.uniform(size=X.shape)
    low, high = effect.bounds(X, lower, upper)
    t = np.linspace(0, 1, 101)
    grid = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    for i in range(3 * N):
        found = effect.transform(lower[i] + grid * (upper[i] - lower[i]))
        assert np.all(found >= low[i] - 1e-12)
        assert np.all(found <= high[i] + 1e-12)
        assert_allclose(found.min(axis=0), low[i], atol=5e-3)
        assert_allclose(found.max(axis=0), high[i], atol=5e-3)


@curved
def test_first_orders_are_derivatives(effect, rng):
    X, F = rng.normal(size=(N, 2)), rng.normal(size=(N, 2, 3))
    found = effect.linearised(X, RowNoise(np.zeros((N, 2)), F)).causes
    for k in range(3):
        h = 1e-6 * F[:, :, k]
        slope = (effect.transform(X + h) - effect.transform(X - h)) / 2e-6
        assert_allclose(np.abs(found[:, :, k]), np.abs(slope), atol=1e-6)


def test_moments_of_waves_are_those_of_draws(rng):
    effect = Waves(np.array([[2.0, -1.0], [0.3, 4.0]]), np.array([0.1, 3.0]))
    X = rng.normal(size=(3, 2))
    for size in (0.01, 0.3, 2.0):
        std = np.full(X.shape, size)
        found = effect.moments(X, RowNoise(std)).deviations
        drawn = effect.transform((X + std * rng.standard_normal((40_000, 3, 2))).reshape(-1, 2)).reshape(-1, 3, 2)
        mean_square = np.mean(np.square(drawn - effect.transform(X)), axis=0)
        assert_allclose(found, np.sqrt(mean_square), rtol=0.03)


def test_waves_lose_no_digits_of_the_noise_where_it_is_small(rng):
    effect, X = Waves(rng.normal(size=(5, 2)), rng.uniform(0, 6, size=5)), rng.normal(size=(3, 2))
    for size in (1e-4, 1e-7, 1e-11):
        noise = RowNoise(np.full(X.shape, size))
        found, first = (of(X, noise).deviations for of in (effect.moments, effect.linearised))
        assert_allclose(found, first, rtol=1e-6, atol=size**2)


@pytest.mark.parametrize("step", [RBFSampler(n_components=8, random_state=0), Nystroem(n_components=5, random_state=0)])
def test_kernel_features_have_the_effect_of_their_own_transform(step, rng):
    X = rng.normal(size=(30, 3))
    step.fit(X)
    effect = together([("k", step)], effects_of([("k", step)], X, {}), 3)
    low, high = effect.bounds(X, X, X)
    assert_allclose(low, step.transform(X), atol=1e-12)
    assert_allclose(high, step.transform(X), atol=1e-12)


def test_noise_of_single_entries_stays_apart_from_common_causes(rng):
    std, F, other = rng.uniform(size=(N, 3)), rng.normal(size=(N, 3, 2)), rng.uniform(size=(N, 3))
    noise = RowNoise(std, F).plus(RowNoise(other))
    total = np.einsum("nir,njr->nij", F, F) + (std**2 + other**2)[:, :, None] * np.eye(3)
    assert noise.factor.shape == (N, 3, 2)
    assert_allclose(np.einsum("nir,njr->nij", noise.causes, noise.causes), total)
    assert_allclose(noise.deviations**2, np.einsum("nii->ni", total))
    A = AffineMap(rng.normal(size=(2, 3)))
    made = noise.through(A).causes
    assert_allclose(np.einsum("nir,njr->nij", made, made), A.matrix @ total @ A.matrix.T)
    swapped = noise.through(AffineMap.selection([2, 0], 3))
    assert_allclose(swapped.std, np.hypot(std, other)[:, [2, 0]])
    assert swapped.factor.shape == (N, 2, 2)


class Squares(TransformerMixin, BaseEstimator):
    """x squared; taught with the mean that noise gives it."""

    def fit(self, X, y=None):
        self.n_features_in_ = np.shape(X)[1]
        return self

    def transform(self, X):
        return np.square(X)


class SquaresEffect(Effect):
    def bounds(self, X, lower, upper):
        ends = np.square(lower), np.square(upper)
        return np.where(lower * upper < 0, 0.0, np.minimum(*ends)), np.maximum(*ends)

    def linearised(self, X, noise):
        return noise.times(2 * X)

    def expected(self, X, Z, noise):
        # E (x + d)^2 = x^2 + s^2, with variance 4 x^2 s^2 + 2 s^4
        square = noise.deviations**2
        return Z + square, noise.times(2 * X).plus(RowNoise(np.sqrt(2) * square))


teach_step(Squares, lambda step, n_features: SquaresEffect())


@pytest.mark.parametrize("steps", [[], [("scale", StandardScaler())], [("none", "passthrough")]], ids=str)
def test_a_step_may_move_the_means_of_noisy_rows(steps, rng):
    X = rng.normal(size=(60, 2)) * [1.0, 3.0]
    y, S = (np.square(X).sum(axis=1) > 4).astype(int), rng.uniform(0.1, 1.0, size=X.shape)
    pipe = UncertainPipeline([("squares", Squares()), *steps, ("clf", GaussianRobustClassifier())]).fit(X, y, X_std=S)
    means = np.square(X) + S**2
    deviations = np.hypot(2 * X * S, np.sqrt(2) * S**2)
    if steps and steps[0][0] == "scale":
        scaler = StandardScaler().fit(np.square(X))
        means, deviations = scaler.transform(means), deviations / scaler.scale_
    direct = GaussianRobustClassifier().fit(means, y, X_std=deviations)
    assert_allclose(pipe[-1].coef_, direct.coef_, rtol=1e-6)
    assert_allclose(pipe.flip_probability(X, X_std=S), direct.flip_probability(means, X_std=deviations), atol=1e-6)


def test_means_move_inside_unions_and_pipelines_too(rng):
    X, S = rng.normal(size=(20, 2)), rng.uniform(0.1, 1.0, size=(20, 2))
    union = FeatureUnion([("both", make_pipeline(StandardScaler(with_mean=False), Squares())), ("same", "passthrough")])
    union.fit(X)
    effect = together([("u", union)], effects_of([("u", union)], X, {}), 2)
    rows, noise = effect.expected(X, union.transform(X), RowNoise(S))
    scale = X.std(axis=0)
    assert_allclose(rows, np.hstack([np.square(X / scale) + np.square(S / scale), X]))
    assert_allclose(noise.deviations[:, 2:], S)


def test_effects_that_lose_common_causes_are_told(rng):
    noise = RowNoise(np.zeros((2, 1)), np.ones((2, 1, 3)))
    with pytest.raises(ValueError, match="lost causes"):
        side_by_side([noise, RowNoise(np.ones((2, 1)))], common=3)


def test_a_taught_step_is_known_everywhere(rng):
    class Halves(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            self.n_features_in_ = np.shape(X)[1]
            return self

        def transform(self, X):
            return np.asarray(X)[:, :1] - np.asarray(X)[:, 1:]

    teach_step(Halves, lambda step, n: Affine(np.hstack([np.ones((n - 1, 1)), -np.eye(n - 1)])))
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] > X[:, 1]).astype(int)
    model = make_pipeline(Halves(), LogisticRegression()).fit(X, y)
    w = model[-1].coef_[0]
    lengths = np.linalg.norm([w.sum(), *w])
    assert_allclose(certified_radius(model, X).radius, np.abs(model.decision_function(X)) / lengths, rtol=1e-9)
    assert UncertainPipeline(model.steps).carried(X, Box(0.1))[0] is not None


def test_effects_that_are_none_or_of_another_function_are_refused(rng):
    class Cubes(Squares):
        def transform(self, X):
            return np.asarray(X) ** 3

    X = rng.normal(size=(8, 2))
    pipe = UncertainPipeline([("cubes", Cubes())]).fit(X)
    for effect, error, text in (
        (lambda step, n: None, TypeError, "Return an Effect"),
        (lambda step, n: Affine(np.ones((2, 3))), ValueError, "its effect takes 3 features, the step 2"),
        (lambda step, n: Monotone(np.exp), ValueError, "gives intervals that do not contain"),
    ):
        teach_step(Cubes, effect)
        with pytest.raises(error, match=text):
            pipe.carried(X, Box(0.1))


@pytest.mark.parametrize("imputer", [SimpleImputer(), SimpleImputer(add_indicator=True), SpreadImputer()], ids=str)
@pytest.mark.parametrize("before", [[], [StandardScaler()], [FunctionTransformer(), StandardScaler()]], ids=str)
def test_rows_with_holes_are_affine_in_what_is_there_and_in_what_is_filled_in(imputer, before, rng):
    X = rng.normal(size=(30, 3)) * [1.0, 10.0, 0.1] + 5
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    steps = make_pipeline(*before, imputer, StandardScaler()).fit(X)
    effect = together(steps.steps, effects_of(steps.steps, X, {}), 3)
    form = effect.affine_form(X)
    rows = np.hstack([np.nan_to_num(X), form.given])
    assert_allclose(form.map(rows), steps.transform(X), rtol=1e-9, atol=1e-9)
    moved = np.where(np.isnan(X), np.nan, X + 0.3)
    shifted = np.hstack([np.nan_to_num(moved), form.given])
    assert_allclose(form.map(shifted), steps.transform(moved), rtol=1e-9, atol=1e-9)


def test_monotone_effects_have_no_affine_form(rng):
    X = rng.normal(size=(5, 2))
    assert Monotone(np.exp).affine_form(X) is None
    assert Affine(np.eye(2)).affine_form(X).given is None
    assert GaussianNoise(0.1).at(X, {}).support(np.ones(2)) > 0
