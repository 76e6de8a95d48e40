"""What steps make of uncertainty, against images of points drawn from it."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

from holdfast import (
    Ball,
    Box,
    ChanceConstraint,
    ConditionalImputer,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    RobustLinearClassifier,
    SpreadImputer,
    UncertainPipeline,
)
from holdfast.features import Affine, Monotone, teach_step
from holdfast.features.row_noise import RowNoise, side_by_side
from holdfast.uncertainty import LinearImage

N, D = 12, 4


@pytest.fixture
def rows(rng):
    return np.exp(rng.normal(size=(N, D))) * [1.0, 3.0, 0.2, 10.0] + 2.0


def _half_and_half(first, second):
    return ColumnTransformer([("one", first, [2, 0]), ("two", second, [1])], remainder="passthrough")


def _falling(X):
    return np.exp(-np.asarray(X) / 10)


AFFINE = {
    "standard": StandardScaler(),
    "robust": RobustScaler(),
    "min_max": MinMaxScaler((-1, 3)),
    "max_abs": MaxAbsScaler(),
    "pca": PCA(2),
    "whitened": PCA(3, whiten=True),
    "incremental": IncrementalPCA(2),
    "ica": FastICA(2, random_state=0),
    "svd": TruncatedSVD(2),
    "projection": GaussianRandomProjection(3, random_state=0),
    "best": SelectKBest(k=2),
    "columns": _half_and_half(StandardScaler(), "drop"),
    "columns_mixed": _half_and_half(PCA(1), MinMaxScaler()),
    "union": FeatureUnion([("a", StandardScaler()), ("b", PCA(1))], transformer_weights={"b": 2.0}),
    "twice": FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())]),
    "nested": Pipeline([("scale", StandardScaler()), ("no", "passthrough"), ("pca", PCA(2))]),
    "reversed": FunctionTransformer(lambda X: np.asarray(X)[:, ::-1] @ np.diag([1.0, -2.0, 0.5, 1.0]) + 3.0),
    "complete": SimpleImputer(),
    "conditional": ConditionalImputer(),
}
CURVED = {
    "power": PowerTransformer(),
    "quantile": QuantileTransformer(n_quantiles=8),
    "clipped": MinMaxScaler((0, 1), clip=True),
    "log": FunctionTransformer(np.log1p),
    "falling": FunctionTransformer(_falling),
    "polynomial": PolynomialFeatures(3),
    "products": PolynomialFeatures(2, interaction_only=True, include_bias=False),
    "columns_curved": _half_and_half(PCA(1), FunctionTransformer(np.log1p)),
    "union_curved": FeatureUnion([("a", StandardScaler()), ("b", FunctionTransformer(np.sqrt))]),
    "nested_curved": Pipeline([("log", FunctionTransformer(np.log1p)), ("pca", PCA(2))]),
}

SIGNED = {"power", "falling", "polynomial", "products"}
"""Curved steps that take values of both signs, between which even functions turn."""
STATED = {"reversed": "linear", "falling": "monotone"}

_rng = np.random.default_rng(5)
STDS = _rng.uniform(0.05, 0.4, size=(N, D))
FACTORS = 0.3 * _rng.normal(size=(N, D, 2))
WORST = {
    "ball": (Ball(0.3), {}),
    "ball_1": (Ball(0.3, norm=1), {}),
    "ball_inf": (Ball(0.3, norm=np.inf), {}),
    "ball_rows": (Ball(0.5), {"X_radius": _rng.uniform(0, 1, size=N)}),
    "box": (Box(0.5, half_widths=[0.1, 0.0, 0.3, 0.2]), {}),
    "box_relative": (Box(0.5, relative=0.1), {}),
    "box_rows": (Box(0.5), {"X_std": STDS}),
    "intervals": (IntervalBox([-0.1, 0, -0.2, -1], 0.3), {}),
    "ellipsoid": (Ellipsoid(0.5, shape=FACTORS[0] @ FACTORS[0].T), {}),
    "ellipsoid_rows": (Ellipsoid(0.5), {"X_std": STDS}),
    "chance": (ChanceConstraint(0.2, "gaussian", cov=0.04), {}),
    "chance_bounded": (ChanceConstraint(0.3, "bounded"), {"X_std": STDS}),
    "sum": (Ball(0.2) + Box(0.5), {"X_std": STDS}),
}
NOISES = {
    "noise": (GaussianNoise(0.2), {}),
    "noise_features": (GaussianNoise([0.1, 0.0, 0.3, 0.2]), {}),
    "noise_cov": (GaussianNoise(cov=FACTORS[0] @ FACTORS[0].T), {}),
    "noise_rows": (GaussianNoise(0.5), {"X_std": STDS}),
    "noise_cov_rows": (GaussianNoise(0.5), {"X_cov": FACTORS @ FACTORS.transpose(0, 2, 1)}),
    "noise_factor_rows": (GaussianNoise(0.5), {"X_factor": FACTORS}),
}


def _said(name):
    return {name: STATED[name]} if name in STATED else None


def _fitted(name, step, X, **options):
    y = np.arange(len(X)) % 2
    return UncertainPipeline([(name, step)], effects=_said(name), **options).fit(X, y)


def _matrix(pipe, X):
    """Return the matrix of an affine step, from what it does to rows."""
    moved = pipe.transform(np.repeat(X[:1], D, axis=0) + np.eye(D))
    return (np.asarray(moved) - np.asarray(pipe.transform(X[:1]))).T


def _supports(bound, w):
    return np.broadcast_to(bound.support(w), N)


@pytest.mark.parametrize("step", AFFINE)
def test_affine_steps_are_exact_for_every_set_and_noise(step, rows, rng):
    pipe = _fitted(step, AFFINE[step], rows)
    A = _matrix(pipe, rows)
    Z = np.asarray(pipe.transform(rows))
    for key, (uncertainty, metadata) in (WORST | NOISES).items():
        made, carried = pipe.carried(rows, uncertainty, **metadata)
        before, after = uncertainty.at(rows, metadata), made.at(Z, carried)
        for w in rng.normal(size=(5, A.shape[0])):
            want = _supports(before, A.T @ w)
            assert_allclose(_supports(after, w), want, rtol=1e-9, atol=1e-10, err_msg=key)
            moved = rows + np.broadcast_to(before.maximizer(A.T @ w), rows.shape)
            assert_allclose((np.asarray(pipe.transform(moved)) - Z) @ w, want, rtol=1e-7, atol=1e-8, err_msg=key)


def test_intervals_of_rows_go_with_their_rows_through_negative_scales(rows):
    lower, upper = rows - STDS, rows + 0.3 * STDS
    pipe = _fitted("reversed", AFFINE["reversed"], rows).set_params(effects=None)
    with pytest.raises(ValueError, match=r"step 'reversed', FunctionTransformer.*is it linear"):
        pipe.carried(rows, IntervalBox(), X_lower=lower, X_upper=upper)
    made, carried = pipe.set_params(effects=_said("reversed")).carried(
        rows, IntervalBox(), X_lower=lower, X_upper=upper
    )
    ends = pipe.transform(lower), pipe.transform(upper)
    assert made == IntervalBox()
    assert_allclose(carried["X_lower"], np.minimum(*ends), rtol=1e-12)
    assert_allclose(carried["X_upper"], np.maximum(*ends), rtol=1e-12)


@pytest.mark.parametrize("step", CURVED)
def test_intervals_contain_the_images_of_all_points_of_a_set(step, rows, rng):
    for X in (rows, 0.2 * (rows - np.median(rows, axis=0))) if step in SIGNED else (rows,):
        pipe = _fitted(step, CURVED[step], X)
        for key, (uncertainty, metadata) in WORST.items():
            if uncertainty.is_of_scores:
                continue
            made, carried = pipe.carried(X, uncertainty, **metadata)
            assert made == IntervalBox()
            for draw in uncertainty.at(X, metadata).sample(rng, 60, D):
                image = np.asarray(pipe.transform(X + draw))
                slack = 1e-9 * (1 + np.abs(image))
                assert np.all(carried["X_lower"] - slack <= image), key
                assert np.all(image <= carried["X_upper"] + slack), key


@pytest.mark.parametrize("step", ["power", "quantile", "clipped", "log", "falling", "union_curved"])
def test_ends_of_boxes_through_monotone_steps_are_attained(step, rows):
    pipe = _fitted(step, CURVED[step], rows)
    _, carried = pipe.carried(rows, Box(0.5), X_std=STDS)
    ends = [np.asarray(pipe.transform(rows + sign * 0.5 * STDS)) for sign in (-1, 1)]
    assert_allclose(carried["X_lower"], np.minimum(*ends), rtol=1e-9, atol=1e-10)
    assert_allclose(carried["X_upper"], np.maximum(*ends), rtol=1e-9, atol=1e-10)


def test_bounds_of_products_are_the_extremes_over_a_grid():
    X, half = np.array([[0.3, -2.0], [-1.0, 0.0], [3.0, 4.0]]), np.array([[1.0, 0.5], [0.4, 2.0], [1.0, 1.0]])
    pipe = UncertainPipeline([("poly", PolynomialFeatures(4))]).fit(X)
    _, carried = pipe.carried(X, Box(), X_std=half)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    for i in range(3):
        images = pipe.transform(X[i] + grid * half[i])
        assert_allclose(carried["X_lower"][i], images.min(axis=0), atol=1e-12)
        assert_allclose(carried["X_upper"][i], images.max(axis=0), atol=1e-12)


# the other ones have kinks
@pytest.mark.parametrize("step", [*sorted(CURVED.keys() - {"quantile", "clipped"}), "standard", "union"])
def test_linearised_noise_is_that_of_the_derivatives(step, rows, rng):
    for X in (rows, 0.2 * (rows - np.median(rows, axis=0))) if step in SIGNED else (rows,):
        pipe = _fitted(step, (CURVED | AFFINE)[step], X, nonlinear="linearise")
        Z, small = np.asarray(pipe.transform(X)), 1e-3
        for key, (uncertainty, metadata) in NOISES.items():
            made, carried = pipe.carried(X, uncertainty.times(small), **metadata)
            after = made.at(Z, carried)
            before = uncertainty.times(small).at(X, metadata)
            for w in rng.normal(size=(3, Z.shape[1])):
                # the derivative of w'z along every direction
                slopes = np.array(
                    [
                        (np.asarray(pipe.transform(X + 1e-5 * e) - pipe.transform(X - 1e-5 * e)) @ w) / 2e-5
                        for e in np.eye(D)
                    ]
                ).T
                want = [float(np.broadcast_to(before.support(slope), N)[i]) for i, slope in enumerate(slopes)]
                assert_allclose(_supports(after, w), want, rtol=2e-3, err_msg=key)


def test_noise_has_no_intervals_and_raise_raises(rows):
    pipe = _fitted("log", CURVED["log"], rows, nonlinear="interval")
    with pytest.raises(ValueError, match=r"step 'log', FunctionTransformer: is no affine map.*nonlinear='auto'"):
        pipe.carried(rows, GaussianNoise(0.1))
    pipe.set_params(nonlinear="raise")
    with pytest.raises(ValueError, match=r"step 'log'.*is no affine map"):
        pipe.carried(rows, Box(0.1))


def test_function_that_ends_within_an_interval_is_said_so(rows):
    pipe = _fitted("log", FunctionTransformer(np.log), rows)
    with pytest.raises(
        ValueError, match=r"step 'log'.*is not finite at an end of an interval, -9\d.*row 0, column 0\. Narrow"
    ):
        pipe.carried(rows, Box(100.0))


@pytest.mark.parametrize(
    ("step", "share"),
    [
        (FunctionTransformer(np.log), 0.2),
        (FunctionTransformer(np.log), 0.45),
        (FunctionTransformer(np.log), 0.95),
        (FunctionTransformer(np.log1p), 0.7),
        (FunctionTransformer(np.sqrt), 0.5),
        (FunctionTransformer(np.exp), 0.1),
        (FunctionTransformer(_falling), 0.8),
        (PowerTransformer(), 0.2),
        (PowerTransformer("box-cox"), 0.2),
        (QuantileTransformer(n_quantiles=8), 0.5),
        (MinMaxScaler(clip=True), 0.5),
    ],
    ids=lambda value: getattr(getattr(value, "func", None), "__name__", None) or repr(value),
)
def test_moments_of_noise_are_those_of_draws_that_stay_in_the_domain(step, share, rng):
    X = rng.uniform(1.0, 3.0, size=(N, 2)) ** [1.0, 2.0]
    S = share * X
    pipe = UncertainPipeline(
        [("bend", step)], effects={"bend": "monotone"} if getattr(step, "func", None) is _falling else None
    ).fit(X)
    made, carried = pipe.carried(X, GaussianNoise(), X_std=S)
    draws = X + S * rng.normal(size=(20000, *X.shape))
    draws = np.where(draws > 0, draws, np.nan) if step.get_params().get("method") == "box-cox" else draws
    with np.errstate(all="ignore"):
        moved = pipe.transform(draws.reshape(-1, 2)).reshape(draws.shape)
    rise = np.where(np.isfinite(moved), moved - pipe.transform(X), np.nan)
    assert made == GaussianNoise()
    assert_allclose(carried["X_std"], np.sqrt(np.nanmean(rise**2, axis=0)), rtol=0.06)
    if share == 0.45:
        assert np.all(carried["X_std"] > 1.1 * share)  # which is what the derivative says


def test_noise_beyond_the_domain_is_carried_by_the_derivative():
    X = np.array([[1e-9, 1.0, 2.0], [3.0, 0.5, 1e3], [0.1, 1.0, 10.0]])
    S = np.array([[1.0, 1.0, 1e3], [0.0, 4.0, 1e4], [0.1, 2.0, 11.0]])
    pipe = UncertainPipeline([("log", FunctionTransformer(np.log))]).fit(X)
    assert_allclose(pipe.carried(X, X_std=S)[1]["X_std"], S / X, rtol=1e-4)


@pytest.mark.parametrize("step", [*sorted(CURVED.keys() - {"quantile", "clipped"}), "standard", "union"])
def test_moments_of_small_noise_are_those_of_the_derivatives(step, rows, rng):
    pipe = _fitted(step, (CURVED | AFFINE)[step], rows)
    Z, small = np.asarray(pipe.transform(rows)), 1e-4
    for key, (uncertainty, metadata) in NOISES.items():
        bounds = []
        for nonlinear in ("auto", "linearise"):
            made, carried = pipe.set_params(nonlinear=nonlinear).carried(rows, uncertainty.times(small), **metadata)
            bounds.append(made.at(Z, carried))
        for w in rng.normal(size=(3, Z.shape[1])):
            # correlations too, with their signs
            assert_allclose(_supports(bounds[0], w), _supports(bounds[1], w), rtol=2e-3, err_msg=key)


def test_errors_of_one_cause_are_opposed_after_a_falling_function(rows):
    both = _half_and_half(StandardScaler(), FunctionTransformer(_falling))
    factors = 0.1 * np.ones((N, D, 1))
    for nonlinear in ("auto", "linearise"):
        pipe = UncertainPipeline([("both", both)], effects={"both__two": "monotone"}, nonlinear=nonlinear).fit(rows)
        F = pipe.carried(rows, X_factor=factors)[1]["X_factor"]
        assert np.all(F[:, 2] * F[:, 0] < 0)
        assert np.all(F[:, 3] * F[:, 0] > 0)


def test_moments_of_powers_are_not_lost_where_derivatives_vanish(rng):
    X, S = np.array([[0.0, 2.0], [0.5, -1.0]]), np.array([[0.3, 0.1], [0.4, 0.2]])
    pipe = UncertainPipeline([("poly", PolynomialFeatures(2, include_bias=False))]).fit(X)
    made, carried = pipe.carried(X, X_std=S)
    C = carried["X_factor"] @ carried["X_factor"].transpose(0, 2, 1)
    x, s = X[:, 0], S[:, 0]
    assert_allclose(C[:, 2, 2], 4 * x**2 * s**2 + 3 * s**4)
    draws = X + S * rng.normal(size=(100000, *X.shape))
    rise = pipe.transform(draws.reshape(-1, 2)).reshape(len(draws), 2, -1) - pipe.transform(X)
    want = np.einsum("nij,nik->ijk", rise, rise) / len(draws)
    want[:, 3, 3] -= S[:, 0] ** 2 * S[:, 1] ** 2  # products of errors are left out
    assert_allclose(C, want, atol=0.01)
    assert made == GaussianNoise()


@pytest.mark.parametrize(
    ("steps", "column"),
    [
        ([FunctionTransformer(np.log, feature_names_out="one-to-one")], "'c'"),
        ([SimpleImputer(), FunctionTransformer(np.log)], "'c'"),
        ([SelectKBest(lambda X, y: np.array([0, 1, 3, 2]), k=2), FunctionTransformer(np.log)], "'c'"),
        ([ColumnTransformer([("log", FunctionTransformer(np.log), ["d", "c"])])], "'c'"),
        (
            [
                ColumnTransformer(
                    [("log", Pipeline([("i", SimpleImputer()), ("l", FunctionTransformer(np.log))]), ["d", "c"])]
                )
            ],
            "'c'",
        ),
        ([PCA(), MinMaxScaler((1, 2)), FunctionTransformer(np.log)], r"\d of those that the step takes"),
    ],
    ids=["frame", "imputer", "selector", "columns", "nested", "mixed"],
)
def test_entries_whose_errors_leave_the_domain_are_named(steps, column, rows):
    frame, S = pd.DataFrame(rows, columns=list("abcd")), np.full(rows.shape, 0.01)
    S[5, 2] = 50.0
    named = [(str(number), step) for number, step in enumerate(steps)]
    pipe = UncertainPipeline(named, nonlinear="linearise").fit(frame, np.arange(N) % 2)
    with pytest.raises(
        ValueError,
        match=rf"step '{len(steps) - 1}'.*one standard deviation off, -.*row 5, column {column}.*nonlinear='auto'",
    ):
        pipe.carried(frame, X_std=S)
    with pytest.raises(ValueError, match=rf"is not finite at an end of an interval, -.*row 5, column {column}"):
        pipe.carried(frame, Box(), X_std=S)
    assert np.all(np.isfinite(next(iter(pipe.set_params(nonlinear="auto").carried(frame, X_std=S)[1].values()))))


def test_rows_outside_of_the_domain_are_named(rows):
    pipe = _fitted("log", FunctionTransformer(np.log), rows)
    rows[5, 2] = -3.0
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"not finite at its value, -3, .*row 5, column 2"):
        pipe.carried(rows, GaussianNoise(0.1))


@pytest.mark.parametrize("before", ["passthrough", StandardScaler(), PCA(3)], ids=str)
def test_chances_of_scores_are_not_carried_by_intervals(before, rows):
    steps = [("before", before), ("bent", FunctionTransformer(np.tanh))]
    pipe = UncertainPipeline(steps).fit(rows)
    for uncertainty in (ChanceConstraint(0.05, cov=0.1), Ball(0.1) + ChanceConstraint(0.05, "gaussian", cov=0.1)):
        with pytest.raises(ValueError, match=r"step 'bent'.*bounds single scores with its probability.*'linearise'"):
            pipe.carried(rows, uncertainty)
    with pytest.raises(ValueError, match="bounds single scores"):
        pipe.carried(rows, ChanceConstraint(0.05), X_std=STDS)


def test_chances_of_scores_are_linearised_where_asked(rows):
    pipe = _fitted("log", CURVED["log"], rows, nonlinear="linearise")
    chance = ChanceConstraint(0.05, "gaussian", cov=1e-8)
    made, carried = pipe.carried(rows, chance)
    assert made == Ellipsoid()
    assert_allclose(carried["X_std"], chance.gamma() * 1e-4 / (1 + rows), rtol=1e-6)


def test_ellipsoids_are_linearised_where_asked(rows):
    pipe = _fitted("log", CURVED["log"], rows, nonlinear="linearise")
    made, carried = pipe.carried(rows, Ball(1e-4))
    assert made == Ellipsoid()
    assert_allclose(carried["X_std"], 1e-4 / (1 + rows), rtol=1e-6)


def test_deletions_through_scalers_are_those_of_the_original_features(rows, rng):
    pipe = UncertainPipeline([("scale", StandardScaler()), ("best", VarianceThreshold())]).fit(rows)
    made, carried = pipe.carried(rows, FeatureDeletion(2, values=[1.0, 1.0, 2.0, np.inf]))
    assert carried == {}
    Z = pipe.transform(rows)
    bound = made.at(Z, {})
    for w in rng.normal(size=(5, D)):
        worst = np.zeros(N)
        for gone in ([], [0], [1], [2], [0, 1]):
            changed = rows.copy()
            changed[:, gone] = 0.0
            worst = np.maximum(worst, (pipe.transform(changed) - Z) @ w)
        # fractions of the dear feature may be deleted too, never less than whole ones
        assert np.all(bound.support(w) >= worst - 1e-9)
    made, _ = pipe.carried(rows, FeatureDeletion(1))
    for w in rng.normal(size=(5, D)):
        alone = [(pipe.transform(np.where(np.arange(D) == j, 0.0, rows)) - Z) @ w for j in range(D)]
        assert_allclose(made.at(Z, {}).support(w), np.maximum(np.max(alone, axis=0), 0.0), rtol=1e-9)
    with pytest.raises(ValueError, match=r"step 'pca', PCA.*mixes features"):
        _fitted("pca", PCA(2), rows).carried(rows, FeatureDeletion(1))


def test_deletion_of_a_feature_that_is_not_selected_is_harmless(rows):
    pipe = _fitted("best", SelectKBest(k=2), rows)
    made, _ = pipe.carried(rows, FeatureDeletion(1, values=[1.0, 2.0, 3.0, 4.0]))
    assert made == FeatureDeletion(1, values=np.array([1.0, 2.0, 3.0, 4.0])[pipe[0].get_support()])


def test_unchanged_forms_stay_fast_ones(rows):
    scaled, rotated = _fitted("standard", StandardScaler(), rows), _fitted("pca", PCA(2), rows)
    assert scaled.carried(rows, Box(0.5), X_std=STDS)[0] == Box(0.5)
    assert rotated.carried(rows, Ball(0.5))[0] == Ball(0.5)
    assert rotated.carried(rows, Ball(0.5), X_radius=np.ones(N))[0] == Ball(0.5)
    assert rotated.carried(rows, GaussianNoise(0.5), X_std=STDS)[0] == GaussianNoise(0.5)
    assert isinstance(rotated.carried(rows, Box(0.5))[0], LinearImage)
    one = scaled.carried(rows, Box(0.5))[0].at(rows, {})
    assert one.interval_form() is not None
    assert one.is_common


def test_sparse_deviations_stay_sparse_through_scalers(rows):
    X = sparse.csr_array(np.where(rows > 4, rows, 0.0))
    pipe = UncertainPipeline([("scale", MaxAbsScaler())]).fit(X)
    _, carried = pipe.carried(X, Box(0.5), X_std=0.1 * X)
    assert sparse.issparse(carried["X_std"])
    assert_allclose(carried["X_std"].toarray(), 0.1 * pipe.transform(X).toarray())
    _, carried = pipe.carried(X, Box(relative=0.1))
    assert sparse.issparse(carried["X_std"])
    _, carried = pipe.carried(X, IntervalBox(), X_lower=0.5 * X, X_upper=2 * X)
    assert_allclose(carried["X_lower"].toarray(), 0.5 * pipe.transform(X).toarray())


def test_filled_entries_have_the_spread_of_their_column(rows, rng):
    X = rows.copy()
    X[3, 1] = X[5, 2] = np.nan
    pipe = UncertainPipeline([("fill", SpreadImputer(add_indicator=True)), ("scale", StandardScaler())]).fit(X)
    spread, scale = np.nanstd(X, axis=0), pipe[1].scale_
    _, noise = pipe.carried(X, GaussianNoise(0.1))
    want = np.full((N, D), 0.1)
    want[3, 1], want[5, 2] = np.hypot(0.1, spread[1]), np.hypot(0.1, spread[2])
    assert_allclose(noise["X_std"], np.hstack([want, np.zeros((N, 2))]) / scale, rtol=1e-12)
    made, carried = pipe.carried(X, Box(0.5), X_std=np.where(np.isnan(X), np.nan, STDS))
    Z = pipe.transform(X)
    half = np.where(np.isnan(X), spread, 0.5 * STDS)
    assert_allclose(carried["X_upper"] - Z, np.hstack([half, np.zeros((N, 2))]) / scale, rtol=1e-9, atol=1e-12)
    # a ball stays one, in units of the scaler, and what is filled in comes on top
    made, carried = pipe.carried(X, Ball(0.2))
    w, added = rng.normal(size=D + 2), np.where(np.isnan(X), spread, 0.0)
    want = 0.2 * np.linalg.norm((w / scale)[:D]) + added @ np.abs(w / scale)[:D]
    assert_allclose(made.at(Z, carried).support(w), want, rtol=1e-9)


@pytest.mark.parametrize("uncertainty", [Box(0.1), Ball(0.1), Ellipsoid(0.1)], ids=str)
def test_models_fitted_with_missing_entries_answer_about_complete_rows_and_the_other_way_round(uncertainty, rows):
    y, holed = np.arange(N) % 2, rows.copy()
    holed[::3, 1] = np.nan
    steps = [("fill", SpreadImputer()), ("scale", StandardScaler()), ("clf", RobustLinearClassifier(uncertainty))]
    pipe = UncertainPipeline(steps).fit(holed, y)
    w, scale = pipe[-1].coef_[0], pipe[1].scale_
    push = np.broadcast_to(uncertainty.at(rows, {}).support(w / scale), N)
    assert_allclose(pipe.certified_margin(rows), np.abs(pipe.decision_function(rows)) - push, atol=1e-9)
    assert_allclose(pipe.certified_margin(rows[:1]), pipe.certified_margin(rows)[:1], atol=1e-9)
    # the same rows are the same rows, whatever others are asked about
    some = np.vstack([holed[:1], rows[1:]])
    assert_allclose(pipe.certified_margin(some)[1:], pipe.certified_margin(rows)[1:], atol=1e-9)
    other = UncertainPipeline(steps).fit(rows, y)
    assert other.certified_margin(holed)[1] == pytest.approx(other.certified_margin(rows)[1])
    assert np.all(other.certified_margin(holed)[::3] < np.abs(other.decision_function(holed)[::3]))


@pytest.mark.parametrize("curved", [FunctionTransformer(np.log), PowerTransformer("box-cox"), MinMaxScaler(clip=True)])
@pytest.mark.parametrize("nonlinear", ["interval", "linearise"])
def test_missing_entries_pass_curved_steps_before_they_are_filled_in(curved, nonlinear, rows):
    holed = rows.copy()
    holed[3, 1] = np.nan
    pipe = UncertainPipeline([("bend", curved), ("fill", SpreadImputer(spread="range"))], nonlinear=nonlinear).fit(
        holed
    )
    if nonlinear == "interval":
        _, carried = pipe.carried(holed, Box(0.1))
        bent = pipe[0].transform(holed)
        assert_allclose(carried["X_lower"][3, 1], np.nanmin(bent[:, 1]))
        assert_allclose(carried["X_upper"][3, 1], np.nanmax(bent[:, 1]))
        assert_allclose(carried["X_upper"][4], pipe[0].transform(rows + 0.1)[4])
    else:
        _, carried = pipe.carried(holed, GaussianNoise(0.1))
        assert_allclose(carried["X_std"][3, 1], pipe[1].spread_[2, 1])


def test_whitening_of_directions_without_variance_is_that_of_scikit_learn(rows):
    flat = np.column_stack([rows, rows[:, 0]])
    pipe = UncertainPipeline([("pca", PCA(whiten=True, svd_solver="full"))]).fit(flat)
    made, _ = pipe.carried(flat, Box(half_widths=[0.1, 0.0, 0.0, 0.0, 0.0]))
    moved = pipe.transform(flat + np.array([0.1, 0.0, 0.0, 0.0, 0.0])) - pipe.transform(flat)
    last = np.eye(5)[4]
    assert_allclose(made.at(pipe.transform(flat), {}).support(last), np.abs(moved @ last)[0], rtol=1e-6)


def test_categories_after_another_affine_step(rows):
    y, coded = np.arange(N) % 2, np.column_stack([rows[:, :2], np.arange(N) % 3])
    for select, codes in ((SelectKBest(lambda X, y: np.arange(3.0), k=2), [1]), (StandardScaler(), [2])):
        second = ColumnTransformer([("o", OneHotEncoder(sparse_output=False), codes)], remainder="passthrough")
        pipe = UncertainPipeline([("one", select), ("two", second)]).fit(coded, y)
        made, carried = pipe.carried(coded, Box(half_widths=[0.1, 0.2, 0.0]))
        Z = pipe.transform(coded)
        moved = pipe.transform(coded + np.array([0.1, 0.2, 0.0]))
        w = np.arange(1.0, Z.shape[1] + 1)
        assert_allclose(np.broadcast_to(made.at(Z, carried).support(w), N), (moved - Z) @ w, rtol=1e-9)
        with pytest.raises(ValueError, match="step 'two', ColumnTransformer: column"):
            pipe.carried(coded, Box(0.1))


def test_filled_entries_may_be_anywhere_in_the_range_of_their_column(rows):
    X = rows.copy()
    X[3, 1] = np.nan
    pipe = UncertainPipeline([("fill", SpreadImputer(spread="range"))]).fit(X)
    _, carried = pipe.carried(X, Box(0.0))
    assert carried["X_lower"][3, 1] == np.nanmin(X[:, 1])
    assert carried["X_upper"][3, 1] == np.nanmax(X[:, 1])
    plain = UncertainPipeline([("fill", SimpleImputer())]).fit(X)
    with pytest.raises(ValueError, match=r"step 'fill', SimpleImputer.*Use SpreadImputer"):
        plain.carried(X, Box(0.1))
    plain.carried(rows, Box(0.1))
    with pytest.raises(ValueError, match=r"SpreadImputer\(spread='all'\)"):
        SpreadImputer(spread="all").fit(X)


def test_frames_with_categories(rows, rng):
    frame = pd.DataFrame(rows, columns=list("abcd")).assign(kind=["x", "y", "z"] * 4)
    numbers = Pipeline([("fill", SpreadImputer()), ("scale", StandardScaler())])
    for curved in (StandardScaler(), FunctionTransformer(np.log1p, feature_names_out="one-to-one")):
        kinds = Pipeline([("fill", SimpleImputer(strategy="most_frequent")), ("codes", OneHotEncoder())])
        columns = ColumnTransformer(
            [("numbers", numbers, ["d", "a"]), ("bent", curved, ["b"]), ("kinds", kinds, ["kind"])]
        )
        pipe = UncertainPipeline([("columns", columns)]).fit(frame)
        stds = pd.DataFrame(STDS, columns=list("abcd"))
        made, carried = pipe.carried(frame, Box(0.5), X_std=stds[list("dbca")])
        again = pipe.carried(frame, Box(0.5), X_std=np.column_stack([STDS, np.zeros(N)]))[1]
        Z = np.asarray(pipe.transform(frame))
        for draw in Box(0.5).at(rows, {"X_std": STDS}).sample(rng, 20, D):
            moved = frame.copy()
            moved[list("abcd")] += draw
            error = np.asarray(pipe.transform(moved)) - Z
            for w in rng.normal(size=(5, Z.shape[1])):
                assert np.all(error @ w <= made.at(Z, carried).support(w) + 1e-9)
        assert all(np.array_equal(carried[name], again[name]) for name in carried)
        with pytest.raises(ValueError, match=r"step 'columns'.*column 'kind' goes into categories.*Ball\(radius=0.1\)"):
            pipe.carried(frame, Ball(0.1))
        with pytest.raises(ValueError, match="X has other columns than in fit, or in another order"):
            pipe.carried(frame[["b", "a", "c", "d", "kind"]], Box(), X_std=stds)
        with pytest.raises(ValueError, match="X_std lacks the column 'c'"):
            pipe.carried(frame, Box(), X_std=stds[list("abd")])
        with pytest.raises(ValueError, match="X_std has the column 'a_err'"):
            pipe.carried(frame, Box(), X_std=stds.rename(columns={"a": "a_err"}))


def test_unknown_step_is_an_error_that_names_it_and_the_choices(rows):
    pipe = _fitted("norm", Normalizer(), rows)
    with pytest.raises(ValueError, match=r"step 'norm', Normalizer: what it does to errors is not known.*teach_step"):
        pipe.carried(rows, Box(0.1))
    inside = _fitted("both", _half_and_half(Normalizer(), StandardScaler()), rows)
    with pytest.raises(ValueError, match="step 'both__one', Normalizer"):
        inside.carried(rows, Box(0.1))
    with pytest.raises(ValueError, match=r"effects=\{'norm': 'linear'\}: Normalizer is not linear"):
        pipe.set_params(effects={"norm": "linear"}).carried(rows, Box(0.1))
    with pytest.raises(ValueError, match="say 'linear' or 'monotone'"):
        pipe.set_params(effects={"norm": "nice"}).carried(rows, Box(0.1))


class Doubled(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return 2 * X


class Cubed(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X**3

    def uncertainty_effect(self, n_features):
        return Monotone(self.transform)


def test_steps_can_be_taught_and_can_say_themselves(rows):
    teach_step(Doubled, lambda step, n_features: Affine(np.full(n_features, 2.0)))
    assert_allclose(_fitted("twice", Doubled(), rows).carried(rows, Box(), X_std=STDS)[1]["X_std"], 2 * STDS)
    assert_allclose(_fitted("cube", Cubed(), rows).carried(rows, Box(0.1))[1]["X_upper"], (rows + 0.1) ** 3)


class Squashed(StandardScaler):
    """A known kind of step that does something else."""

    def transform(self, X, copy=None):
        return np.tanh(super().transform(X))


class SquashedAndSaysSo(Squashed):
    def uncertainty_effect(self, n_features):
        return Monotone(self.transform)


def test_what_a_step_says_itself_or_is_said_of_it_goes_before_what_its_class_is_known_to_do(rows):
    ends = [np.tanh(StandardScaler().fit(rows).transform(rows + shift)) for shift in (-0.1, 0.1)]
    for step, said in ((SquashedAndSaysSo(), None), (Squashed(), {"step": "monotone"})):
        pipe = UncertainPipeline([("step", step)], effects=said).fit(rows)
        _, carried = pipe.carried(rows, Box(0.1))
        assert_allclose(carried["X_lower"], ends[0], rtol=1e-9)
        assert_allclose(carried["X_upper"], ends[1], rtol=1e-9)
    with pytest.raises(
        ValueError, match=r"step 'step', Squashed: is a StandardScaler, but Squashed has a transform of its"
    ):
        UncertainPipeline([("step", Squashed())]).fit(rows).carried(rows, Box(0.1))
    with pytest.raises(ValueError, match="Squashed is not linear"):
        UncertainPipeline([("step", Squashed())], effects={"step": "linear"}).fit(rows).carried(rows, Box(0.1))


def test_effects_of_steps_that_are_not_there_are_refused(rows):
    both = _half_and_half(FunctionTransformer(lambda X: 2 * X), StandardScaler())
    pipe = UncertainPipeline([("both", both)], effects={"both__one": "linear", "both__remainder": "linear"}).fit(rows)
    pipe.carried(rows, Box(0.1))
    for wrong in ("one", "both__ones", "both__one__func"):
        with pytest.raises(
            ValueError, match=rf"effects={{'{wrong}': 'linear'}}\): no such step. Name one of .*both__one"
        ):
            pipe.set_params(effects={wrong: "linear"}).fit(rows)
    with pytest.raises(ValueError, match="say 'linear' or 'monotone'"):
        pipe.set_params(effects={"both__one": "nice"}).fit(rows)


def test_claims_are_tried_at_the_rows(rows, rng):
    kinked = FunctionTransformer(lambda X: np.where(X < 20, X, 10 * X - 180))
    far = 20 + 3 * rng.normal(size=(N, D))
    pipe = UncertainPipeline([("f", kinked)], effects={"f": "linear"}).fit(far)
    with pytest.raises(ValueError, match=r"effects=\{'f': 'linear'\}: FunctionTransformer is not linear"):
        pipe.carried(far, Box(0.1))
    _, carried = pipe.set_params(effects={"f": "monotone"}).carried(far, Box(0.1))
    assert_allclose(carried["X_upper"], kinked.transform(far + 0.1))
    mixing = lambda X: X / np.linalg.norm(X, axis=1, keepdims=True)
    for function in (mixing, lambda X: np.abs(X - 20), lambda X: X[:, :2], lambda X: np.sort(X, axis=1)):
        pipe = UncertainPipeline([("f", FunctionTransformer(function))], effects={"f": "monotone"}).fit(far)
        with pytest.raises(
            ValueError, match=r"effects=\{'f': 'monotone'\}: FunctionTransformer does not change each feature"
        ):
            pipe.carried(far, Box(0.1))


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, lambda rows, columns: pl.DataFrame(rows, schema=columns)], ids=["pandas", "polars"]
)
def test_claims_about_steps_that_take_frames_are_tried_with_frames(frame, rows):
    def difference(given):
        return np.column_stack([given["a"], given["a"] - given["b"]])

    F = frame(rows, columns=list("abcd"))
    pipe = UncertainPipeline([("f", FunctionTransformer(difference))], effects={"f": "linear"}).fit(F)
    made, _ = pipe.carried(F, Box(0.5))
    assert_allclose(made.at(pipe.transform(F), {}).support(np.array([0.0, 1.0])), 1.0)
    named = FunctionTransformer(lambda given: given * 2)
    inner = ColumnTransformer([("f", named, ["c", "a"])])
    _, carried = UncertainPipeline([("t", inner)], effects={"t__f": "monotone"}).fit(F).carried(F, Box(0.5))
    assert_allclose(carried["X_upper"], 2 * rows[:, [2, 0]] + 1)


@pytest.mark.parametrize("marker", [-9.0, 0, "gone"])
def test_missing_entries_that_are_marked_by_a_value_are_refused(marker, rows):
    X = rows.astype(object) if isinstance(marker, str) else rows.copy()
    X[::3, 0] = marker
    pipe = UncertainPipeline([("fill", SimpleImputer(missing_values=marker, strategy="most_frequent"))]).fit(X)
    with pytest.raises(ValueError, match=r"step 'fill', SimpleImputer\(missing_values=.*is np.nan"):
        pipe.carried(X, Box(half_widths=[0.1, 0.0, 0.0, 0.0]))


def test_causes_of_one_group_are_none_of_another(rng):
    shared, own, other = rng.normal(size=(3, 2, 2)), rng.normal(size=(3, 2, 1)), rng.normal(size=(3, 1, 3))
    first = RowNoise.mixed(np.concatenate([shared, own], axis=2))
    second = RowNoise.mixed(np.concatenate([shared[:, :1], other], axis=2))
    F = side_by_side([first, second], common=2).causes
    C = F @ F.transpose(0, 2, 1)
    assert_allclose(C[:, :2, :2], first.causes @ first.causes.transpose(0, 2, 1))
    assert_allclose(C[:, 2:, 2:], second.causes @ second.causes.transpose(0, 2, 1))
    assert_allclose(C[:, :2, 2:], shared @ shared[:, :1].transpose(0, 2, 1))
    apart = side_by_side([RowNoise(STDS[:, :1]), RowNoise.mixed(FACTORS)], common=0).causes
    assert_allclose((apart @ apart.transpose(0, 2, 1))[:, :1, 1:], 0.0)


def test_errors_that_reach_categories_through_other_steps_are_refused(rows):
    bins = np.round(rows)
    for before in (StandardScaler(), FunctionTransformer(np.sqrt)):
        coded = Pipeline([("before", before), ("codes", OneHotEncoder(handle_unknown="ignore"))])
        both = ColumnTransformer([("coded", coded, [2]), ("rest", StandardScaler(), [0, 1, 3])])
        pipe = UncertainPipeline([("both", both)]).fit(bins)
        with pytest.raises(ValueError, match="step 'both', ColumnTransformer: column 2 goes into categories"):
            pipe.carried(bins, Box(0.1))
        pipe.carried(bins, Box(half_widths=[0.1, 0.1, 0.0, 0.1]))


def test_certificates_refuse_errors_of_categories(rows):
    bins, y = np.round(rows), np.arange(N) % 2
    both = ColumnTransformer(
        [("coded", OneHotEncoder(handle_unknown="ignore"), [2]), ("rest", StandardScaler(), [0, 1, 3])]
    )
    last = RobustLinearClassifier(Box(half_widths=[0.1, 0.1, 0.0, 0.1]), alpha=0.01)
    pipe = UncertainPipeline([("both", both), ("clf", last)]).fit(bins, y)
    assert len(pipe.certify(bins)) == N
    with pytest.raises(ValueError, match="column 2 goes into categories"):
        pipe.certify(bins, Box(0.1))
