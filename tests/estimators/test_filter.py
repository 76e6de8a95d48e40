"""filter_threshold: what is set to 0, what it costs, and that the guarantee for the stated sets is kept."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier, RobustLinearClassifierCV
from holdfast.estimators import radius_path

N, D = 60, 6


@pytest.fixture
def noisy(two_classes, rng):
    """Rows, labels, and half-widths by entry; half of the entries are small and tell against the labels."""
    X, y = two_classes(N, D, separation=2.0)
    against = -0.15 * np.abs(X) * np.outer(y, np.sign(y @ X))
    X = np.where(rng.uniform(size=X.shape) < 0.5, against, X)
    X[rng.uniform(size=X.shape) < 0.1] = 0.0
    return X, y, rng.uniform(0.05, 0.5, size=X.shape)


def _sets(X, S):
    """Return sets with their metadata and, at radius 1, how far they reach to either side at least."""
    s, ends = S[0], {"X_lower": X - S, "X_upper": X + 0.5 * S}
    return {
        "by entry": (Box(0.5), {"X_std": S}, S),
        "sparse": (Box(0.5), {"X_std": sparse.csr_array(np.where(S > 0.3, S, 0.0))}, np.where(S > 0.3, S, 0.0)),
        "common": (Box(0.5, half_widths=s), {}, np.tile(s, (N, 1))),
        "relative": (Box(0.5, relative=[0.1, 5.0, 0.3, 0.1, 7.0, 0.1]), {}, np.abs(X) * [0.1, 5, 0.3, 0.1, 7, 0.1]),
        "interval": (IntervalBox(radius=0.5), ends, 0.5 * S),
        "common interval": (IntervalBox(-s, 2 * s, radius=0.5), {}, np.tile(s, (N, 1))),
        "sum": (Box(0.5, half_widths=s) + Box(0.2), {"X_std": S}, 0.5 * s + 0.2 * S),
        "cube": (Ball(0.2, np.inf), {}, np.ones((N, D))),
    }


@pytest.fixture(params=_sets(np.zeros((N, D)), np.zeros((N, D))))
def stated(request, noisy):
    return _sets(noisy[0], noisy[2])[request.param]


def _problem(X, y, stated, threshold, **options):
    chosen, metadata, _ = stated
    model = RobustLinearClassifier(chosen, filter_threshold=threshold, **options)
    return model, model._problems(X, y, None, metadata)[0]


def _dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 2.0])
def test_entries_within_the_threshold_are_zero_and_no_others(threshold, kind, noisy, stated):
    X, y, _ = noisy
    model, problem = _problem(kind(X), y, stated, threshold)
    is_small = np.abs(X) <= threshold * stated[2] * (1 + 1e-12)
    assert_array_equal(_dense(problem.rows.X), np.where(is_small, 0.0, X))
    assert model.filtered_ == pytest.approx(np.count_nonzero(X[is_small]) / np.count_nonzero(X))


@pytest.mark.parametrize("name", ["by entry", "common", "interval", "common interval"])
def test_rows_that_are_trained_on_are_admissible_up_to_the_radius(name, noisy):
    X, y, S = noisy
    stated = _sets(X, S)[name]
    own = stated[0].at(X, stated[1])
    for threshold, is_admissible in ((0.49, True), (0.5, True), (1.5, False)):
        moved = _problem(X, y, stated, threshold)[1].rows.X
        assert np.all(own.contains(_dense(moved) - X)) == is_admissible


@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_objective_is_that_of_the_enlarged_sets_and_never_below_the_stated_one(kappa, noisy, stated, rng):
    X, y, _ = noisy
    threshold, reach = 0.7, stated[2]
    plain, thin = (_problem(X, y, stated, each, kappa=kappa)[1] for each in (None, threshold))
    kept = np.where(np.abs(X) <= threshold * reach * (1 + 1e-12), 0.0, X)
    # a mix is around the middle of intervals
    middle = kept if plain.middles is None else kept + plain.middles
    for theta in rng.normal(size=(50, D + 1)):
        w, b = theta[:-1], theta[-1]
        # by hand: rows without these entries, supports larger by their sizes
        t = plain.sets.support(w) + np.abs(X - kept) @ np.abs(w)
        expected = np.sum(np.maximum(1 - y * (middle @ w + b) + kappa * t, 0) + (1 - kappa) * t) + 0.5 * w @ w
        found, before = (problem.value_and_gradient(theta)[0] for problem in (thin, plain))
        assert found == pytest.approx(expected, rel=1e-12)
        assert before <= found * (1 + 1e-12)
        assert found <= before + 2 * threshold * reach.sum(axis=0) @ np.abs(w) + 1e-9
        losses = [np.maximum(1 - y * (Z @ w + b), 0).sum() for Z in (X, kept)]
        assert abs(losses[0] - losses[1]) <= threshold * reach.sum(axis=0) @ np.abs(w) + 1e-9


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_no_admissible_data_cost_more_than_the_certified_objective(loss, noisy, stated, rng):
    X, y, _ = noisy
    chosen, metadata, _ = stated
    model = RobustLinearClassifier(chosen, loss=loss, alpha=0.3, filter_threshold=0.6).fit(X, y, **metadata)
    assert model.gap_ <= 1e-6
    assert 0 < model.filtered_ < 1
    w, b = model.coef_[0], model.intercept_[0]
    bound = chosen.at(X, metadata)
    draws = [*bound.sample(rng, 200, D), bound.against_labels(y).maximizer(w) * -y[:, None]]
    for delta in draws:
        u = 1 - y * ((X + delta) @ w + b)
        cost = np.sum(np.maximum(u, 0) if loss == "hinge" else np.logaddexp(0, u - 1)) + 0.15 * w @ w
        assert cost <= model.objective_ * (1 + 1e-12)


def test_enlarging_what_is_filtered_costs_less_than_enlarging_everything(noisy):
    X, y, S = noisy
    rho, threshold = 0.3, 0.4
    wide = RobustLinearClassifier(Box(rho + threshold)).fit(X, y, X_std=S)
    thin = RobustLinearClassifier(Box(rho), filter_threshold=threshold).fit(X, y, X_std=S)
    plain = RobustLinearClassifier(Box(rho)).fit(X, y, X_std=S)
    assert plain.lower_bound_ <= thin.objective_ < wide.lower_bound_


@pytest.mark.parametrize("name", ["common", "common and sparse"])
def test_where_nearly_all_is_filtered_half_widths_stay_as_sparse_as_rows(name, noisy, rng):
    X, y, S = noisy
    X = np.where(rng.uniform(size=X.shape) < 0.06, X + 3, 0.1 * S * rng.uniform(-1, 1, size=X.shape))
    own = sparse.csr_array(np.where(rng.uniform(size=S.shape) < 0.05, S, 0.0))
    s, threshold = 0.3 * S.mean(axis=0), 0.9
    chosen, metadata, reach = {
        "common": (Box(0.5, half_widths=s), {}, np.tile(s, (N, 1))),
        "common and sparse": (Box(half_widths=s) + Box(), {"X_std": own}, s + own.toarray()),
    }[name]
    plain, thin = (_problem(X, y, (chosen, metadata, reach), each)[1] for each in (None, threshold))
    is_small = np.abs(X) <= threshold * reach
    assert sparse.issparse(thin.rows.X)
    assert thin.sets.half.nnz <= np.count_nonzero(~is_small | (own.toarray() > 0))
    for w in rng.normal(size=(20, D)):
        extra = np.where(is_small, threshold * reach, 0.0) @ np.abs(w)
        assert_allclose(thin.sets.support(w), plain.sets.support(w) + extra, rtol=1e-11)
        assert_allclose(thin.sized(0.2).sets.support(w), 0.2 * plain.sets.support(w) + extra, rtol=1e-11)
        before, found = (problem.value_and_gradient(np.append(w, 0.3))[0] for problem in (plain, thin))
        assert before <= found * (1 + 1e-12)
        assert found <= before + 2 * threshold * reach.sum(axis=0) @ np.abs(w) + 1e-9


def test_rows_become_sparse_where_little_is_left(noisy):
    X, y, S = noisy
    for threshold, is_sparse in ((0.1, False), (9.0, True)):
        problem = _problem(X, y, (Box(0.5), {"X_std": S}, S), threshold)[1]
        assert sparse.issparse(problem.rows.X) == is_sparse
        assert sparse.issparse(_problem(sparse.csr_array(X), y, (Box(0.5), {"X_std": S}, S), threshold)[1].rows.X)


def test_no_threshold_and_0_change_nothing(noisy):
    X, y, S = noisy
    plain = RobustLinearClassifier(Box(0.3)).fit(X, y, X_std=S)
    for threshold in (None, 0, 0.0):
        same = RobustLinearClassifier(Box(0.3), filter_threshold=threshold).fit(X, y, X_std=S)
        assert same.filtered_ == 0
        assert_array_equal(same.coef_, plain.coef_)


def test_entries_stored_in_parts_are_compared_as_wholes(noisy):
    X, y, S = noisy
    whole = sparse.csr_array(X)
    halves = sparse.csr_array((np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), X.shape)
    stated = (Box(0.5), {"X_std": S}, S)
    found, expected = (_problem(Z, y, stated, 0.4)[1].rows.X for Z in (halves, whole))
    assert_allclose(found.toarray(), expected.toarray())
    assert halves.nnz == 2 * whole.nnz


@pytest.mark.parametrize("name", ["by entry", "common", "common interval", "sum"])
def test_sets_of_another_radius_are_enlarged_by_the_same_entries(name, noisy, rng):
    X, y, S = noisy
    stated = _sets(X, S)[name]
    plain, thin = (_problem(X, y, stated, each)[1] for each in (None, 0.7))
    theta = rng.normal(size=D + 1)
    extra = thin.sets.support(theta[:-1]) - plain.sets.support(theta[:-1])
    for factor in (0.1, 1.0, 3.0):
        found = thin.sized(factor).sets.support(theta[:-1])
        assert_allclose(found, factor * plain.sets.support(theta[:-1]) + extra, rtol=1e-11)


def test_searches_over_the_radius_pass_the_threshold_on(noisy):
    X, y, S = noisy
    radii = [0.1, 0.4]
    path = radius_path(X, y, radii, uncertainty=Box(), filter_threshold=0.5, X_std=S)
    for radius, objective in zip(path.radii, path.objectives, strict=True):
        model = RobustLinearClassifier(Box(radius), filter_threshold=0.5).fit(X, y, X_std=S)
        assert objective == pytest.approx(model.objective_, rel=2e-6)
    search = RobustLinearClassifierCV(radii, uncertainty=Box(), filter_threshold=0.5, cv=3).fit(X, y, X_std=S)
    model = RobustLinearClassifier(Box(search.radius_), filter_threshold=0.5).fit(X, y, X_std=S)
    assert search.objective_ == pytest.approx(model.objective_, rel=2e-6)
    assert search.filtered_ == model.filtered_ > 0


def test_each_part_of_partial_fit_is_filtered(noisy):
    X, y, S = noisy
    model = RobustLinearClassifier(Box(0.5), solver="stochastic_proximal", filter_threshold=0.5)
    model.partial_fit(X[:30], y[:30], classes=[-1, 1], X_std=S[:30])
    is_small = np.abs(X[:30]) <= 0.5 * S[:30]
    assert model.filtered_ == np.count_nonzero(X[:30][is_small]) / np.count_nonzero(X[:30])


@pytest.mark.parametrize(
    "uncertainty", [None, Ball(0.1), Ellipsoid(0.1), GaussianNoise(0.1), Ball(0.1) + Box(0.1)], ids=repr
)
def test_sets_without_half_widths_are_refused(uncertainty, noisy):
    model = RobustLinearClassifier(uncertainty, filter_threshold=0.1)
    with pytest.raises(ValueError, match=r"filter_threshold=0.1\): .*half-widths, which only boxes have"):
        model.fit(*noisy[:2])
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("threshold", [-0.1, np.nan, "much"])
def test_thresholds_that_are_none_are_refused(threshold, noisy):
    X, y, S = noisy
    with pytest.raises(ValueError, match=r"filter_threshold=.*must be a finite number >= 0"):
        RobustLinearClassifier(Box(0.1), filter_threshold=threshold).fit(X, y, X_std=S)


def test_noise_and_boxes_together_are_filtered_by_the_boxes(noisy, rng):
    X, y, _ = noisy
    both = GaussianNoise(std=0.3) + Box(0.5)
    plain, thin = (
        RobustLinearClassifier(both, filter_threshold=each)._problems(X, y, None, {})[0] for each in (None, 0.4)
    )
    assert np.count_nonzero(thin.rows.X) < np.count_nonzero(plain.rows.X)
    for theta in rng.normal(size=(20, D + 1)):
        assert plain.value_and_gradient(theta)[0] <= thin.value_and_gradient(theta)[0] * (1 + 1e-12)
