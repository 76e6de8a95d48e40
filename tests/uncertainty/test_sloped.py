"""Noise kept as slopes and forms, against the factors that it stands for."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast._data import rows_of
from holdfast.estimators.units import units_looked_at
from holdfast.uncertainty.affine_map import AffineMap
from holdfast.uncertainty.row_ellipsoids import FactorEllipsoids
from holdfast.uncertainty.sloped import BLOCK_ENTRIES, SlopedEllipsoids, SlopedFactor

N, D_IN, D_OUT = 7, 4, 9


def parts_of(kind, rng):
    """Slopes of two groups of forms, one of them sparse, for each kind of noise; two inputs are exact."""
    std = rng.uniform(0.1, 1, size=(N, D_IN)) * [1, 0, 1, 0]
    factor = rng.normal(size=(N, D_IN, 2))
    rest = rng.uniform(size=(N, D_OUT)) * (np.arange(D_OUT) != 2)
    own = sparse.csr_array(np.repeat(np.eye(D_IN), 2, axis=0)[:6])
    forms = [own, rng.normal(size=(3, D_IN))]
    slopes = rng.normal(size=(N, D_OUT)) * (np.arange(D_OUT) != 2)  # the third output does not move at all
    if kind == "own, sparse":
        forms = [own, sparse.csr_array(np.eye(D_IN)[[3, 0, 0]])]
    if kind in ("own", "own, sparse"):
        factor = factor[:, :, :0]
    if kind == "common":
        std, rest = 0 * std, 0 * rest
    if kind == "none":
        std, factor, rest = 0 * std, factor[:, :, :0], 0 * rest
    return SlopedFactor(slopes, forms, std, factor, rest)


@pytest.fixture(params=["both", "own", "own, sparse", "common", "none"])
def parts(request, rng):
    return parts_of(request.param, rng)


@pytest.fixture
def pair(parts):
    return SlopedEllipsoids(parts), FactorEllipsoids(np.asarray(parts))


def test_it_stands_for_the_array_of_the_docstring(parts):
    V = np.vstack([form.toarray() if sparse.issparse(form) else form for form in parts.forms])
    found = np.asarray(parts)
    assert found.shape == parts.shape == (N, D_OUT, parts.n_followed + D_OUT)
    assert len(parts) == N
    for i in range(N):
        inputs = np.hstack([parts.factor[i], np.diag(parts.std[i])])
        moved = parts.slopes[i][:, None] * (V @ inputs)
        assert_allclose(found[i] @ found[i].T, moved @ moved.T + np.diag(parts.rest[i] ** 2), atol=1e-12)
    assert np.asarray(parts, dtype=np.float32).dtype == np.float32


def test_rows_taken_stacked_and_multiplied_are_those_of_the_array(parts):
    def squares(factors):
        factors = np.asarray(factors)
        return factors @ factors.transpose(0, 2, 1)

    whole = squares(parts)
    assert_allclose(squares(parts[2:5]), whole[2:5], atol=1e-14)
    assert_allclose(squares(parts[np.array([4, 0])]), whole[[4, 0]], atol=1e-14)
    assert_allclose(squares(parts.times(3.0)), 9 * whole, rtol=1e-13, atol=1e-14)
    # lots whose inputs have other errors of their own
    other = parts[:3]
    other = SlopedFactor(other.slopes, other.forms, other.std[:, ::-1], other.factor, other.rest)
    assert_allclose(squares(SlopedFactor.stacked([parts, other])), np.concatenate([whole, squares(other)]), atol=1e-14)


def test_every_method_says_what_the_factors_say(pair, rng):
    sloped, full = pair
    w, v = rng.normal(size=D_OUT), rng.normal(size=D_OUT)
    first, second = rng.uniform(size=N), rng.uniform(size=N)
    rows, target = rows_of(rng.normal(size=(N, D_OUT))), full.adjoint(v, first)
    points = np.vstack([0.9 * full.maximizer(w)[:4], 1.1 * full.maximizer(w)[4:]])
    scale = full.support(w)
    asked = {
        "support": (w,),
        "maximizer": (w,),
        "adjoint": (w, first),
        "curvature": (w, first, second),
        "covariance": (first,),
        "directional": (w, v),
        "curvature_product": (w, first, v),
        "square_curvature": (D_OUT, first),
        "cross": (w, rows, first),
        "required_share": (target, first, scale),
        "residual": (target, first, scale, v),
        "contains": (points,),
        "absolute_reach": (D_OUT,),
        "exact_features": (D_OUT,),
        "root": (w,),
    }
    for name, arguments in asked.items():
        found, wanted = (getattr(clouds, name)(*arguments) for clouds in (sloped, full))
        assert_allclose(found, wanted, rtol=1e-9, atol=1e-11, err_msg=name)
    assert_allclose(sloped.maximizer(w, slice(2, 5)), full.maximizer(w)[2:5], atol=1e-12)
    assert sloped.exact_features(D_OUT)[2]
    assert sloped.exact_directions(D_OUT).shape == full.exact_directions(D_OUT).shape
    map = AffineMap(rng.normal(size=(3, D_OUT)))
    assert_allclose(sloped.image(map).support(w[:3]), full.image(map).support(w[:3]), rtol=1e-12, atol=1e-14)
    for one, other in (
        (sloped.scaled(2.5), full.scaled(2.5)),
        (sloped.take(np.array([5, 1])), full.take(np.array([5, 1]))),
        (sloped.take(slice(1, 3)), full.take(slice(1, 3))),
        (sloped.smoothed(0.3), full.smoothed(0.3)),
    ):
        assert_allclose(one.support(w), other.support(w), rtol=1e-12, atol=1e-14)


def test_draws_are_those_of_the_factors(pair):
    sloped, full = pair
    for method in ("gaussian", "draw"):
        found, wanted = (getattr(clouds, method)(np.random.default_rng(5), (N, D_OUT)) for clouds in (sloped, full))
        assert_allclose(found, wanted, atol=1e-12)
    assert_allclose(sloped.sample(np.random.default_rng(5), 3, D_OUT), full.sample(np.random.default_rng(5), 3, D_OUT))


def test_derivatives_are_those_of_the_support(parts, rng):
    clouds, w, step = SlopedEllipsoids(parts), rng.normal(size=D_OUT), 1e-6
    moves = step * np.eye(D_OUT)
    slopes = np.transpose([(clouds.support(w + e) - clouds.support(w - e)) / (2 * step) for e in moves])
    assert_allclose(clouds.maximizer(w), slopes, atol=1e-8)
    first = rng.uniform(size=N)
    bends = [(clouds.adjoint(w + e, first) - clouds.adjoint(w - e, first)) / (2 * step) for e in moves]
    assert_allclose(clouds.curvature(w, first, np.zeros(N)), bends, atol=1e-7)


def test_covariances_are_summed_in_blocks(rng, monkeypatch):
    parts, weights = parts_of("both", rng), rng.uniform(size=N)
    whole = SlopedEllipsoids(parts).covariance(weights)
    monkeypatch.setattr("holdfast.uncertainty.sloped.BLOCK_ENTRIES", 2 * D_OUT * parts.n_followed)
    assert_allclose(SlopedEllipsoids(parts).covariance(weights), whole, rtol=1e-12)
    assert BLOCK_ENTRIES > 1


def test_a_fit_with_the_parts_is_the_fit_with_the_factors(rng, two_classes):
    Z, y = two_classes(60, D_OUT)
    parts = SlopedFactor.stacked([parts_of("both", rng) for _ in range(9)])[:60]
    fits = [
        GaussianRobustClassifier(GaussianNoise(0.5), alpha=0.1).fit(Z, y, X_factor=noise)
        for noise in (parts, np.asarray(parts))
    ]
    assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-6, atol=1e-8)
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-9)
    chances = [
        model.predict_proba(Z, X_factor=noise) for model, noise in zip(fits, (parts, np.asarray(parts)), strict=True)
    ]
    assert_allclose(chances[0], chances[1], atol=1e-7)


def test_a_fit_forms_no_factors(rng):
    n, d, width = 300, 4, 80
    forms = [rng.normal(size=(width, d)) / d]
    S, slopes, rest = rng.uniform(size=(n, d)), rng.normal(size=(n, width)), rng.uniform(size=(n, width))
    parts = SlopedFactor(slopes, forms, S, np.zeros((n, d, 0)), 0.1 * rest)
    Z = rng.normal(size=(n, width))
    y = np.where(Z[:, 0] + 0.3 * rng.normal(size=n) > 0, 1, 0)
    tracemalloc.start()
    with units_looked_at():  # as in pipelines
        model = GaussianRobustClassifier(max_iter=30).fit(Z, y, X_factor=parts)
    model.predict_proba(Z, X_factor=parts)
    assert tracemalloc.get_traced_memory()[1] < 0.5 * 8 * n * width * (width + d)
    tracemalloc.stop()
    assert model.gap_ < 1e-4


def test_parts_of_other_rows_are_refused(rng, two_classes):
    Z, y = two_classes(60, D_OUT)
    with pytest.raises(ValueError, match=r"X_factor has shape \(7, 9, 13\).*n_samples=60"):
        GaussianRobustClassifier().fit(Z, y, X_factor=parts_of("both", rng))


def test_exact_parts_move_nothing(rng):
    clouds = SlopedEllipsoids(parts_of("none", rng))
    assert_array_equal(clouds.support(rng.normal(size=D_OUT)), np.zeros(N))
    assert np.all(clouds.exact_features(D_OUT))
