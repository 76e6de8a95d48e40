"""Proofs recompute everything from formulas of their own, so a fault in what solvers see is noticed at fit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from holdfast import (
    Ball,
    Box,
    FeatureDeletionClassifier,
    GaussianNoise,
    GaussianRobustClassifier,
    IntervalBox,
    LabelFlips,
    MinimaxProbabilityClassifier,
    RobustLinearClassifier,
)
from holdfast._core.exceptions import ProofError
from holdfast._problems.dispersions import RootOfSquares
from holdfast._problems.expected_softmax import ExpectedSoftmaxProblem
from holdfast._problems.label_flips import LabelFlipProblem, most_valuable
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.max_of_pairs import MaxOfPairsProblem
from holdfast._problems.noise_and_set import NoiseAndSetProblem
from holdfast._problems.pairwise import PairwiseProblem
from holdfast._proofs.consistency import consistent
from holdfast._proofs.label_flips import dearest_flips
from holdfast._proofs.pulls import sizes_of_sums
from holdfast.losses import ExpectedCrossEntropy, ExpectedLogistic, Hinge, expected_cross_entropy
from holdfast.losses.joint import CrossEntropy, EasedMaxHinge, MaxHinge
from holdfast.losses.worst_case import WorstCaseLoss
from holdfast.uncertainty.deletion_loss import DeletionLoss


def _smaller(method, *which):
    """Return the method with its results, or those of them, 10 % too small."""

    def planted(self, *args):
        found = method(self, *args)
        if not isinstance(found, tuple):
            return 0.9 * found
        return tuple(0.9 * part if not which or k in which else part for k, part in enumerate(found))

    return planted


def _plant(monkeypatch, cls, *names, which=()):
    for owner in cls.__mro__:
        for name in names:
            if name in vars(owner) and not getattr(vars(owner)[name], "__isabstractmethod__", False):
                monkeypatch.setattr(owner, name, _smaller(vars(owner)[name], *which))


@pytest.fixture
def data(two_classes):
    return two_classes(40, 3, separation=0.7, positives=15)


@pytest.fixture
def three(rng):
    X = rng.normal(size=(45, 3))
    y = np.argmax(X + 0.5 * rng.normal(size=(45, 3)), axis=1)
    return X, y


def _fitted(loss, X, y):
    """Return a fit with this loss, by whichever classifier takes it."""
    if loss.is_worst_case:
        kappa = getattr(loss, "kappa", 1.0)
        return RobustLinearClassifier(Ball(0.1), loss=getattr(loss, "loss", loss), kappa=kappa).fit(X, y)
    return GaussianRobustClassifier(0.3, loss=loss, alpha=1.0).fit(X, y)


# formulas


def test_value_and_slopes_for_proofs_are_those_that_solvers_see(any_loss, rng):
    loss = any_loss
    u = np.append(3 * rng.normal(size=4000) * 10 ** rng.uniform(-2, 2, 4000), [0.0, 0.0, 1.0])
    t = np.append(10 ** rng.uniform(-4, 2, 4000) * (rng.uniform(size=4000) > 0.1), [0.0, 1.0, 0.0])
    value, slope, scale_slope = loss.evaluate(u, t)
    assert_allclose(loss.value(u, t), value, rtol=1e-12, atol=1e-13)
    if not loss.has_dual:
        for own, seen in zip(loss.tangent(u, t), (value, slope, scale_slope), strict=True):
            assert_allclose(own, seen, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("loss", [MaxHinge(), CrossEntropy()], ids=repr)
def test_value_of_joint_losses_for_proofs_is_that_solvers_see(loss, rng):
    z = 5 * rng.normal(size=(300, 4))
    assert_allclose(loss.value(z), loss.evaluate(z)[0], rtol=1e-14)


@pytest.mark.parametrize("t", [0.0, 0.4, 1.5, 30.0])
def test_spline_of_many_rows_is_the_quadrature_of_each(t, rng):
    loss = ExpectedLogistic()
    u = 6 * max(t, 1.0) * rng.normal(size=30_000)
    few = slice(0, 500)
    assert_allclose(loss.value(u, np.array(t))[few], loss.value(u[few], np.array(t)), rtol=0, atol=1e-11 * max(t, 1))
    for many, own in zip(loss.tangent(u, np.array(t)), loss.tangent(u[few], np.array(t)), strict=True):
        assert_allclose(many[few], own, rtol=0, atol=1e-11 * max(t, 1))


def test_dearest_flips_cost_what_the_most_valuable_ones_do(rng):
    for _ in range(50):
        worth, counts = rng.normal(size=12), rng.uniform(0.0, 2.0, size=12) * (rng.uniform(size=12) > 0.2)
        budget = rng.uniform(0, 1.2 * counts.sum())
        share = most_valuable(worth, counts, budget)[1]
        assert dearest_flips(worth, counts, budget) == pytest.approx(float(counts @ (share * worth)), abs=1e-12)


def test_rounding_is_measured_by_the_rows_that_pull(make_problem, two_classes, rng):
    """A huge value of a row that does not pull makes no pull of the others pass for rounding."""
    X, y = two_classes(20, 3)
    weights = rng.uniform(0.5, 2, 20)
    weights[7] = 0.0
    sizes = sizes_of_sums(make_problem(X, y, Hinge(), 0.1), weights)
    assert np.all(sizes >= weights @ np.abs(X))
    X[7] = 1e12
    assert_allclose(sizes_of_sums(make_problem(X, y, Hinge(), 0.1), weights), sizes)


# contradictions


def test_bound_above_the_objective_is_an_error_beyond_rounding_and_the_objective_within():
    assert consistent(2.0, 1.5, lambda: 0.0) == 1.5
    assert consistent(2.0, 2.0 + 1e-12, lambda: 0.0) == 2.0
    assert consistent(0.0, 1e-12, lambda: 1e-11) == 0.0
    with pytest.raises(ProofError, match=r"fault in holdfast.*report"):
        consistent(2.0, 2.1, lambda: 1e-3)


def test_loss_that_solvers_see_too_small_is_noticed_at_fit(any_loss, data, monkeypatch):
    assert _fitted(any_loss, *data).gap_ <= 1e-6
    for cls in {type(any_loss), type(any_loss.smoothed(0.1))}:
        _plant(monkeypatch, cls, "evaluate", "derivatives", "curvature", "psi")
    with pytest.raises(ProofError):
        _fitted(any_loss, *data)


def test_lines_under_a_loss_that_promise_too_much_are_noticed_at_fit(any_loss, data, monkeypatch):
    """Those of its dual form, or its tangents."""
    cls, name = type(any_loss), "dual_value" if any_loss.has_dual else "tangent"
    good = getattr(cls, name)
    monkeypatch.setattr(
        cls,
        name,
        lambda self, *at: 1.1 * good(self, *at) if any_loss.has_dual else tuple(0.5 * part for part in good(self, *at)),
    )
    with pytest.raises((ProofError, ConvergenceWarning)):
        _fitted(any_loss, *data)


@pytest.mark.parametrize("cls", [MaxHinge, EasedMaxHinge, CrossEntropy])
def test_joint_loss_that_solvers_see_too_small_is_noticed_at_fit(cls, three, monkeypatch):
    _plant(monkeypatch, cls, "evaluate")
    loss = "logistic" if cls is CrossEntropy else "hinge"
    with pytest.raises(ProofError):
        RobustLinearClassifier(Ball(0.2), loss=loss, multiclass="joint").fit(*three)


def test_expected_cross_entropy_that_solvers_see_too_small_is_noticed_at_fit(three, monkeypatch):
    _plant(monkeypatch, ExpectedCrossEntropy, "evaluate", "derivatives")
    with pytest.raises(ProofError):
        GaussianRobustClassifier(0.3).fit(*three)


def test_shares_that_are_not_the_best_are_noticed_at_fit(three, monkeypatch):
    def alike(x, t, start=None):
        logs = np.full(x.shape, -np.log(len(x)))
        return logs, expected_cross_entropy._averages(x - logs, t, 3)

    monkeypatch.setattr(expected_cross_entropy, "_settled", alike)
    with pytest.raises(ProofError):
        GaussianRobustClassifier(0.3).fit(*three)


@pytest.mark.parametrize("loss", ["hinge", pytest.param("logistic", marks=pytest.mark.slow)])
def test_joint_fit_and_flips_notice_losses_that_are_too_small_everywhere(loss, data, three, monkeypatch):
    """Once shown as a gap of 0: the objective was taken from the solver."""
    for cls in (WorstCaseLoss, MaxHinge, EasedMaxHinge, CrossEntropy):
        monkeypatch.setattr(cls, "evaluate", _smaller(cls.evaluate, 0))
    with pytest.raises(ProofError):
        RobustLinearClassifier(Ball(0.1), loss=loss, ambiguity=LabelFlips(0.1), max_iter=60).fit(*data)
    with pytest.raises(ProofError):
        RobustLinearClassifier(Ball(0.1), loss=loss, multiclass="joint", max_iter=60).fit(*three)


PROBLEMS = {
    MarginScaleProblem: lambda X, y: RobustLinearClassifier(Box(0.2)).fit(X, y > 0),
    NoiseAndSetProblem: lambda X, y: RobustLinearClassifier(GaussianNoise(0.2) + Ball(0.1)).fit(X, y > 0),
    LabelFlipProblem: lambda X, y: RobustLinearClassifier(Ball(0.1), ambiguity=LabelFlips(0.1)).fit(X, y > 0),
    PairwiseProblem: lambda X, y: GaussianRobustClassifier(0.3, loss="hinge").fit(X, y),
    ExpectedSoftmaxProblem: lambda X, y: GaussianRobustClassifier(0.3).fit(X, y),
    MaxOfPairsProblem: lambda X, y: RobustLinearClassifier(Ball(0.1), multiclass="joint").fit(X, y),
}


def test_every_problem_class_is_among_those_that_are_tried():
    bases = (MarginScaleProblem, PairwiseProblem)
    assert {cls for base in bases for cls in (base, *base.__subclasses__())} == set(PROBLEMS)


@pytest.mark.parametrize("cls", PROBLEMS)
def test_problem_that_solvers_see_too_small_is_noticed_at_fit(cls, three, monkeypatch):
    assert PROBLEMS[cls](*three).gap_ <= 1e-6
    _plant(monkeypatch, cls, "value_and_gradient", "hessian")
    with pytest.raises(ProofError):
        PROBLEMS[cls](*three)


@pytest.mark.parametrize("uncertainty", [None, Box(0.2), Ball(0.2), GaussianNoise(0.3)], ids=repr)
def test_spread_that_solvers_see_too_small_is_noticed_at_fit(uncertainty, data, monkeypatch):
    assert MinimaxProbabilityClassifier(uncertainty).fit(*data).gap_ <= 1e-6
    # the gradient divides by the value, so that it takes the factor twice
    _plant(monkeypatch, RootOfSquares, "value", "gradient")
    _plant(monkeypatch, RootOfSquares, "gradient")
    with pytest.raises(ProofError):
        MinimaxProbabilityClassifier(uncertainty).fit(*data)


@pytest.mark.parametrize("adversary", ["relaxed", "exact"])
def test_deleted_margins_that_come_out_too_small_are_noticed_at_fit(adversary, data, monkeypatch):
    assert FeatureDeletionClassifier(1, adversary=adversary).fit(*data).gap_ <= 1e-6
    _plant(monkeypatch, DeletionLoss, "deficits", which=(0,))
    with pytest.raises(ProofError):
        FeatureDeletionClassifier(1, adversary=adversary).fit(*data)


@pytest.mark.thin(3)
def test_support_that_is_too_small_is_noticed_at_fit(uncertainty, rng, monkeypatch):
    chosen, metadata = uncertainty
    y = np.array([0, 1, 0, 1, 1])
    moved = rng.normal(size=(5, 3)) + 20 * y[:, None]
    X = chosen.example_rows() + moved
    for name in {"X_lower", "X_upper"} & set(metadata):
        if np.shape(metadata[name]) == X.shape:
            metadata = metadata | {name: metadata[name] + moved}
    _plant(monkeypatch, type(chosen.at(X, metadata)), "support")
    with pytest.raises(ProofError):
        RobustLinearClassifier(chosen, alpha=0.01, max_iter=60).fit(X, y, **metadata)


@pytest.mark.parametrize("short", [1e-16, 1e-12, 1e-8])
def test_intervals_with_one_short_side_are_no_contradiction(short, data, rng):
    """The rounding of the long side is far more than a billionth of the short one."""
    X, y = data
    assert RobustLinearClassifier(IntervalBox(-short, 0.2)).fit(X, y).gap_ <= 1e-6
    upper = X + rng.uniform(0, 0.3, X.shape)
    assert RobustLinearClassifier(IntervalBox()).fit(X, y, X_lower=X - short, X_upper=upper).gap_ <= 1e-6
