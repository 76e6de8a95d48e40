"""Fits for sets of rows, wrong labels, class moments and deleted features, beside conic and linear solvers."""

from functools import partial

import cvxpy as cp
import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.svm import LinearSVC

from holdfast import (
    Ball,
    Box,
    Ellipsoid,
    FeatureDeletion,
    FeatureDeletionClassifier,
    FeatureDeletionPerceptron,
    LabelFlips,
    MinimaxProbabilityClassifier,
    RobustLinearClassifier,
    WeightError,
)
from speed import data as tables
from speed.case import Case, Section, Way, ours

CLARABEL = {"solver": cp.CLARABEL, "tol_gap_rel": 1e-6, "tol_gap_abs": 1e-6, "tol_feas": 1e-6, "max_threads": 1}
LIMIT = 300.0
"""Seconds of wall time that HiGHS gets."""


def peer(name, run, objective, best):
    """Return a general solver on the same problem, whose excess over our objective is told; run once."""

    def reached(found):
        return f"excess {objective(found) / max(best(), 1e-9) - 1:.0e}"

    return Way(name, run, reached, is_slow=True)


# sets of rows


def linear_objective(model, data, found):
    """Return the objective of RobustLinearClassifier at weights and an intercept, by the formula."""
    w, b = found
    t = model.uncertainty.at(data.X, data.told).support(w)
    u = np.maximum(1 - data.y * (data.X @ w + b) + t, 0)
    ridge = 0.5 * float(w @ w) if model.penalty == "l2" else 0.0
    return float(np.sum(u if model.loss == "hinge" else u**2)) + ridge


def conic(data, root):
    """Hinge loss with an ellipsoid for all rows and a ridge of 1."""
    w, b, t = cp.Variable(data.X.shape[1]), cp.Variable(), cp.Variable()
    reach = root[0, 0] * cp.norm(w) if root.size == 1 else cp.norm(root.T @ w)
    cost = cp.sum(cp.pos(1 - cp.multiply(data.y, data.X @ w + b) + t)) + 0.5 * cp.sum_squares(w)
    cp.Problem(cp.Minimize(cost), [t >= reach]).solve(**CLARABEL)
    return w.value, float(b.value)


def highs(data, width):
    """ROBLP in (w+, w-, b, e), straight from the report's linear program."""
    n, d = data.X.shape
    signed = data.y[:, None] * data.X
    dense = sparse.csc_array(np.hstack([width - signed, width + signed, -data.y[:, None]]))
    A = sparse.hstack([dense, -sparse.eye_array(n)], format="csc")
    cost = np.concatenate([np.zeros(2 * d + 1), np.ones(n)])
    bounds = [(0, None)] * (2 * d) + [(None, None)] + [(0, None)] * n
    options = {"ipm_optimality_tolerance": 1e-6, "time_limit": LIMIT}
    found = linprog(cost, A, -np.ones(n), bounds=bounds, method="highs-ipm", options=options)
    return found.x[:d] - found.x[d : 2 * d], found.x[2 * d]


def against(name, model, data, peer_name, run):
    """Yield our fit and a general solver on the same problem."""
    yield ours(name, model, data)
    yield peer(peer_name, run, partial(linear_objective, model, data), lambda: model.objective_)


def ball_ways(data, radius):
    model = RobustLinearClassifier(Ball(radius))
    return against(f"Ball({radius})", model, data, "cvxpy + Clarabel", lambda: conic(data, radius * np.eye(1)))


def ellipsoid_ways(data):
    root = np.linalg.cholesky(0.01 * np.cov(data.X.T) + 1e-4 * np.eye(data.X.shape[1]))
    model = RobustLinearClassifier(Ellipsoid(shape=root @ root.T))
    return against("Ellipsoid(shape=...)", model, data, "cvxpy + Clarabel", lambda: conic(data, root))


def box_ways(data, width):
    model = RobustLinearClassifier(Box(width), penalty=None)
    return against(f"Box({width}), no penalty", model, data, "HiGHS interior point", lambda: highs(data, width))


def rowwise_ways(data):
    model = RobustLinearClassifier(Ellipsoid(), loss="squared_hinge")
    yield ours("Ellipsoid(), squared hinge", model, data)
    plain = LinearSVC(dual=False, tol=1e-6)
    yield Way(
        "LinearSVC, which knows of no errors", partial(plain.fit, data.X, data.y), lambda found: "another problem"
    )


def wide_ways(data):
    yield ours("Ellipsoid()", RobustLinearClassifier(Ellipsoid()), data)
    yield ours("Ellipsoid(), no penalty", RobustLinearClassifier(Ellipsoid(), penalty=None), data)


def alone(name, model, data):
    yield ours(name, model, data)


def set_cases():
    yield Case("2000 x 20", tables.drawn(tables.gaussian, 2000, 20), partial(ball_ways, radius=0.05), is_quick=True)
    chosen = [("10 000 x 100", tables.drawn(tables.gaussian, 10_000, 100))]
    if tables.HAS_FOLDER:
        chosen += [("spambase", tables.loaded(tables.spambase)), ("USPS 3 or 5", tables.loaded(tables.usps_3_or_5))]
    for name, data in chosen:
        is_quick = name == "spambase"
        yield Case(f"{name}, ball", data, partial(ball_ways, radius=0.05), is_quick=is_quick)
        yield Case(f"{name}, ellipsoid", data, ellipsoid_ways)
        yield Case(f"{name}, box", data, partial(box_ways, width=0.05), is_quick=is_quick)
    wide = tables.drawn(tables.gaussian, 500, 5000)
    yield Case("500 x 5000, ball", wide, partial(ball_ways, radius=1.0))
    yield Case("500 x 5000, box", wide, partial(box_ways, width=0.2))
    rows = tables.told(tables.drawn(tables.gaussian, 100_000, 30), X_std=tables.uniform_errors)
    yield Case("100 000 x 30, an ellipsoid each", rows, rowwise_ways)
    few = tables.told(tables.drawn(tables.gaussian, 64, 3116), X_std=tables.uniform_errors)
    yield Case("64 x 3116, an ellipsoid each", few, wide_ways)
    joint = RobustLinearClassifier(Ball(0.1), multiclass="joint")
    yield Case("digits, 10 classes", tables.loaded(tables.digits), lambda data: alone("Ball(0.1), joint", joint, data))
    if tables.HAS_FOLDER:
        both = RobustLinearClassifier(Box(0.05), weight_error=WeightError(0.01))
        data = tables.loaded(tables.usps_3_or_5)
        yield Case(
            "USPS 3 or 5, errors of weights", data, lambda data: alone("Box(0.05), WeightError(0.01)", both, data)
        )


# wrong labels


def conic_flips(data, loss, radius, budget):
    w, b, price, t = cp.Variable(data.X.shape[1]), cp.Variable(), cp.Variable(nonneg=True), cp.Variable()
    e, margins = cp.Variable(len(data.y)), cp.multiply(data.y, data.X @ w + b)

    def psi(x):
        return cp.pos(x) if loss == "hinge" else cp.logistic(x - 1)

    cost = cp.sum(e) + budget * price + 0.5 * cp.sum_squares(w)
    limits = [t >= radius * cp.norm(w), e >= psi(1 - margins + t), e >= psi(1 + margins + t) - price]
    return cp.Problem(cp.Minimize(cost), limits).solve(**CLARABEL)


def flip_ways(data, loss, radius, k):
    sets = Ball(radius) if radius else None
    model = RobustLinearClassifier(sets, loss=loss, ambiguity=LabelFlips(k))
    yield ours(f"LabelFlips({k})", model, data)
    yield ours("the same without flips", RobustLinearClassifier(sets, loss=loss), data)
    if loss != "squared_hinge":
        budget = k if isinstance(k, int) else k * len(data.y)
        run = partial(conic_flips, data, loss, radius, budget)
        yield peer("cvxpy + Clarabel", run, lambda value: value, lambda: model.objective_)


def flip_cases():
    data = tables.drawn(tables.gaussian, 10_000, 50, noise=0.3, flipped=0.1)
    for loss, radius in (("hinge", 0.0), ("hinge", 0.05), ("logistic", 0.0), ("squared_hinge", 0.0)):
        for k in (10, 0.05, 0.1):
            name = f"10 000 x 50, {loss}, {f'ball {radius}, ' if radius else ''}{k} flips"
            ways = partial(flip_ways, loss=loss, radius=radius, k=k)
            yield Case(name, data, ways, is_quick=k == 0.05 and not radius)


# class moments


def moment_objective(model, data, w):
    """Return the sum of spreads over the lead, by the formula."""
    S = data.told["X_std"]
    reach = S @ np.abs(w) if isinstance(model.uncertainty, Box) else np.sqrt(S**2 @ w**2)
    spread, lead = 0.0, 0.0
    for sign in (1, -1):
        own = data.y == sign
        a = (data.X[own] - data.X[own].mean(axis=0)) @ w
        spread += np.sqrt(np.mean((np.abs(a) + model.kappa * reach[own]) ** 2))
        spread += (1 - model.kappa) * np.sqrt(np.mean(S[own] ** 2, axis=0)) @ np.abs(w)
        lead += sign * data.X[own].mean(axis=0) @ w - (reach[own].mean() if model.means == "uncertain" else 0.0)
    return spread / lead


def conic_boxes(data, means="fixed", kappa=1.0):
    X, y, S = data.X, data.y, data.told["X_std"]
    plus, minus = cp.Variable(X.shape[1], nonneg=True), cp.Variable(X.shape[1], nonneg=True)
    w, size, cost, lead, constraints = plus - minus, plus + minus, 0, 0, []
    for sign in (1, -1):
        A, R = X[y == sign], kappa * S[y == sign]
        a = (A - A.mean(axis=0)) @ w
        u = cp.Variable(len(A))
        constraints += [u >= a + R @ size, u >= -a + R @ size]
        outside = (1 - kappa) * np.sqrt(np.mean(S[y == sign] ** 2, axis=0)) @ size
        cost += cp.norm(u) / np.sqrt(len(A)) + outside
        drift = S[y == sign].mean(axis=0) @ size if means == "uncertain" else 0
        lead += sign * (A.mean(axis=0) @ w) - drift
    cp.Problem(cp.Minimize(cost), [*constraints, lead >= 1]).solve(**CLARABEL)
    return w.value


def conic_ellipsoids(data):
    X, y, S = data.X, data.y, data.told["X_std"]
    w, cost, lead, constraints = cp.Variable(X.shape[1]), 0, 0, []
    for sign in (1, -1):
        A, R = X[y == sign], S[y == sign]
        u, t = cp.Variable(len(A)), cp.Variable(len(A))
        a = (A - A.mean(axis=0)) @ w
        cones = cp.SOC(t, cp.multiply(R, np.ones((len(A), 1)) @ w[None, :]), axis=1)
        constraints += [u >= a + t, u >= -a + t, cones]
        cost += cp.norm(u) / np.sqrt(len(A))
        lead += sign * (A.mean(axis=0) @ w)
    cp.Problem(cp.Minimize(cost), [*constraints, lead >= 1]).solve(**CLARABEL)
    return w.value


def moment_ways(data, uncertainty, program, **options):
    model = MinimaxProbabilityClassifier(uncertainty, covariance_ridge=0.0, **options)
    yield ours(f"{uncertainty!r}", model, data)
    run = partial(program, data, **options)
    yield peer("cvxpy + Clarabel", run, partial(moment_objective, model, data), lambda: model.solution_["objective"])


def plain_moment_ways(data):
    yield ours("MinimaxProbabilityClassifier()", MinimaxProbabilityClassifier(), data)
    for solver in ("svd", "lsqr"):
        model = LinearDiscriminantAnalysis(solver=solver)
        yield Way(f"LDA ({solver})", partial(model.fit, data.X, data.y), lambda found: "another problem")


def moment_cases():
    plain = tables.drawn(tables.shifted_classes, 100_000, 100)
    yield Case("100 000 x 100, no sets", plain, plain_moment_ways, is_quick=True)
    chosen = [("2000 x 50", tables.drawn(tables.shifted_classes, 2000, 50))]
    if tables.HAS_FOLDER:
        chosen += [("spambase", tables.loaded(tables.spambase))]
    for name, data in chosen:
        rows, is_quick = tables.told(data, X_std=tables.uniform_errors), name == "2000 x 50"
        boxes = partial(moment_ways, uncertainty=Box(), program=conic_boxes)
        yield Case(f"{name}, ROBMPM", rows, boxes, is_quick=is_quick)
        yield Case(f"{name}, ROBMPM, means move", rows, partial(boxes, means="uncertain"))
        yield Case(f"{name}, SPMPM", rows, partial(boxes, kappa=0.0), is_quick=is_quick)
        ellipsoids = partial(moment_ways, uncertainty=Ellipsoid(), program=conic_ellipsoids)
        yield Case(f"{name}, an ellipsoid each", rows, ellipsoids, is_quick=is_quick)
    wide = tables.told(tables.drawn(tables.shifted_classes, 200, 400), X_std=tables.uniform_errors)
    model = MinimaxProbabilityClassifier(Box(), covariance_ridge=0.01)
    yield Case("200 x 400, boxes", wide, lambda data: alone("Box()", model, data))


# deleted features


def published(data, budget, values):
    """Return the arguments of linprog for (4) of Dekel and Shamir: variables w, b, xi, lambda, alpha."""
    (m, n), y = data.X.shape, data.y
    P = values.sum() - budget
    each, entry = np.arange(m), np.arange(m * n)
    owner, column = np.repeat(each, n), np.tile(np.arange(n), m)
    rows = np.concatenate([each, each, each, owner, m + entry, m + entry, m + entry])
    variables = np.full(m, n), n + 1 + each, n + 1 + m + each, n + 1 + 2 * m + entry
    columns = np.concatenate([*variables, column, n + 1 + m + owner, n + 1 + 2 * m + entry])
    gains = -(y[:, None] * data.X).ravel(), np.tile(values, m), -np.ones(m * n)
    entries = np.concatenate([-y, -np.ones(m), -P * np.ones(m), np.ones(m * n), *gains])
    size = n + 1 + 2 * m + m * n
    cost = np.zeros(size)
    cost[n + 1 : n + 1 + m] = 1 / m
    return {
        "c": cost,
        "A_ub": sparse.csc_array((entries, (rows, columns)), shape=(m + m * n, size)),
        "b_ub": np.concatenate([np.zeros(m), -np.tile(values / P, m)]),
        "bounds": [(-1, 1)] * n + [(None, None)] + [(0, None)] * (2 * m + m * n),
    }


def deletion_ways(data, share, spread=False, has_peer=True):
    """Budget and values as shares of the features; the peer's matrix is built beforehand."""
    n = data.X.shape[1]
    values = np.random.default_rng(1).uniform(0.5, 2, size=n) if spread else np.ones(n)
    model = FeatureDeletionClassifier(share * n, values, margin=1.0)
    yield ours(f"budget {share * n:g}", model, data)
    if has_peer:
        arguments = published(data, share * n, values)
        run = partial(linprog, **arguments, method="highs-ipm", options={"time_limit": LIMIT})
        yield Way(
            "HiGHS interior point",
            run,
            lambda found: (
                f"excess {(found.fun - model.objective_) / max(model.objective_, 1):.0e}"
                if found.status == 0
                else "no end"
            ),
            is_slow=True,
        )


def text_ways(data, tol, budget=3):
    yield ours(f"budget {budget}, tol={tol:g}", FeatureDeletionClassifier(budget, tol=tol), data, tol=tol)
    yield ours("FDROP, alpha=1", RobustLinearClassifier(FeatureDeletion(budget), tol=tol), data, tol=tol)
    online = FeatureDeletionPerceptron(budget, random_state=0)
    yield Way(
        "FeatureDeletionPerceptron", partial(online.fit, data.X, data.y), lambda found: f"radius {found.radius_:.2g}"
    )


def deletion_cases():
    for n, d, spread in (
        (200, 50, False),
        (1000, 100, False),
        (1000, 100, True),
        (2000, 200, False),
        (10_000, 100, False),
    ):
        ways = partial(deletion_ways, share=0.2, spread=spread, has_peer=n * d <= 200_000)
        name = f"{n} x {d}{', values 0.5 to 2' * spread}"
        yield Case(name, tables.drawn(tables.uniform, n, d), ways, is_quick=n <= 1000 and not spread)
    if tables.HAS_FOLDER:
        yield Case("spambase", tables.loaded(tables.spambase_to_one), partial(deletion_ways, share=5 / 57))
        for budget in (25, 100):
            ways = partial(deletion_ways, share=budget / 784, has_peer=False)
            yield Case(f"MNIST 4 or 7, 2000 x 784, {budget}", tables.loaded(tables.mnist_4_or_7), ways)
    for n, d, per_row, tol in ((500, 1000, 40, 1e-6), (2000, 5000, 40, 1e-6), (20_000, 50_000, 50, 1e-4)):
        text = tables.drawn(tables.words, n, d, per_row=per_row)
        name = f"words {n} x {d}, {per_row} in a row"
        yield Case(name, text, partial(text_ways, tol=tol), is_quick=n <= 2000, has_memory=n == 20_000)
    # no weights classify all rows with so large a budget
    text = tables.drawn(tables.words, 2000, 5000, per_row=40)
    yield Case("words 2000 x 5000, 40 in a row, budget 8", text, partial(text_ways, tol=1e-4, budget=8))


SECTIONS = {
    "sets": Section(
        "Sets of rows",
        "`RobustLinearClassifier` beside a general solver on the same problem at what it calls 1e-6: hinge "
        "loss with a ball or an ellipsoid for all rows and a ridge of 1; hinge loss with a box and no penalty "
        "(ROBLP). `excess` is by how much the other's objective lies above ours, both evaluated by the same "
        "formula. Slow solvers are run once.",
        list(set_cases()),
    ),
    "flips": Section(
        "Wrong labels",
        "10 % of the labels are flipped; ridge of 1. The peer is the O(n_samples) program of the report at 1e-6.",
        list(flip_cases()),
    ),
    "moments": Section(
        "Class moments",
        "`MinimaxProbabilityClassifier`: intervals of each entry (ROBMPM), with means that move, with all of "
        "the intervals outside (SPMPM), and an ellipsoid for each row. Half-widths and deviations are uniform "
        "from 0 to 0.3, features deviate by about 1.",
        list(moment_cases()),
    ),
    "deletion": Section(
        "Deleted features",
        "The peer is HiGHS on the linear program as published, (4) of Dekel and Shamir, with 300 s of wall "
        "time; it is not run on more than 200 000 entries. Uniform rows have entries from -1 to 1; real "
        "features a largest absolute value of 1. Values are 1 where nothing else is said; rows of text have "
        "words drawn by Zipf's law.",
        list(deletion_cases()),
    ),
}
