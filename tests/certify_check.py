"""Attack certificates and count what falls: `make certify-check`, or `python tests/certify_check.py ATTACKS_PER_KIND`."""

import sys
import time
import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

from holdfast import (
    Ball,
    GaussianRobustClassifier,
    MinimaxProbabilityClassifier,
    RobustFourierFeatures,
    RobustKernelClassifier,
    RobustLinearClassifier,
)
from holdfast._certificates.fourier_model import FourierModel
from holdfast._certificates.models import LinearModel
from holdfast._certificates.pipelines import view_of
from holdfast._certificates.views import View
from holdfast.evaluate import certified_deletions, certified_interval, certified_radius, safe_bits

NORMS = (1, 2, np.inf)
BATCH = 20_000
SLIGHTLY = 1e-6
DEAR = ("robust Nystroem", "robust exact", "robust phases")
"""Models that take longest, which the default tests leave out."""
FAR = 1e100
"""Radii from which on squares of moves might overflow; only where no move changes the class."""
SCALES = np.array([1.0, 0.01, 30.0, 1.0, 5.0])


def data(rng, n_classes, n=240):
    """Return overlapping Gaussian classes whose features have different scales and offsets."""
    y = rng.integers(n_classes, size=n)
    means = rng.normal(size=(n_classes, len(SCALES)))
    return (rng.normal(size=(n, len(SCALES))) + 1.5 * means[y]) * SCALES + 3 * SCALES, y


def linear_models():
    """Return linear models, as a function makes them."""
    return {
        "logistic": LogisticRegression(solver="newton-cholesky"),
        "linear SVC": LinearSVC(max_iter=100_000),
        "discriminant": LinearDiscriminantAnalysis(),
        "Gaussian": GaussianRobustClassifier(0.3),
        "robust": RobustLinearClassifier(Ball(0.1), loss="logistic"),
        "libsvm": make_pipeline(StandardScaler(), SVC(kernel="linear")),
        "principal": make_pipeline(RobustScaler(), PCA(3, whiten=True), RidgeClassifier()),
        "scaled": make_pipeline(MinMaxScaler(), "passthrough", StandardScaler(), LogisticRegression()),
    }


def kernel_models():
    """Return models of the RBF kernel and of random Fourier features."""
    return {
        "SVC": make_pipeline(StandardScaler(), SVC(C=5)),
        "NuSVC": make_pipeline(StandardScaler(), NuSVC(nu=0.2)),
        "minimax": make_pipeline(StandardScaler(), MinimaxProbabilityClassifier(kernel="rbf", covariance_ridge=0.1)),
        "Nystroem": make_pipeline(
            StandardScaler(), Nystroem(gamma=0.1, n_components=40, random_state=0), LogisticRegression()
        ),
        "Fourier": make_pipeline(
            StandardScaler(), RBFSampler(gamma=0.1, n_components=60, random_state=0), LogisticRegression()
        ),
        "narrow": make_pipeline(StandardScaler(), SVC(gamma=20, C=5)),
        "Gaussian": make_pipeline(StandardScaler(), GaussianRobustClassifier(0.1, kernel="rbf", gamma=0.2)),
        "robust Nystroem": make_pipeline(StandardScaler(), robust(n_components=30)),
        "robust exact": make_pipeline(StandardScaler(), robust(features="exact")),
        "robust pairs": make_pipeline(StandardScaler(), robust(features="fourier", n_components=40)),
        "robust phases": make_pipeline(
            StandardScaler(),
            RobustKernelClassifier(
                Ball(0.1),
                features=RobustFourierFeatures(30, gamma=0.1, phases=True, random_state=0),
                bound="water",
                tol=1e-2,
            ),
        ),
    }


def robust(**options):
    """Return a robust classifier in features of a kernel."""
    options = {"bound": "tangent", "tol": 1e-2} | options
    return RobustKernelClassifier(Ball(0.1), gamma=0.1, alpha=0.3, random_state=0, **options)


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def lengths(D, norm):
    return np.linalg.norm(D, norm, axis=1)


def on_the_border(rng, shape, norm):
    """Return random perturbations of length 1, corners and edges among them."""
    D = rng.normal(size=shape) * rng.choice([0.0, 1.0], size=shape, p=[0.3, 0.7])
    corners = rng.uniform(size=shape[0]) < 0.5
    D[corners] = np.sign(D[corners])
    D[~np.any(D, axis=1), 0] = 1.0
    return D / lengths(D, norm)[:, None]


def view_at(model, X):
    """Return what certificates see of a model at other rows."""
    return View(model, X, X, X.shape[1])


def worst_directions(view, X, norm, weights):
    """Return perturbations of length 1 that a linear model's closest rival gains the most by."""
    D = np.zeros(X.shape)
    reach = view.reach(norm, weights, X.dtype)
    for part, _, (codes, leads, is_turned) in view_at(view, X).lead_blocks():
        each = np.arange(len(codes))
        rivals = view.radii(leads, view.decision.of_rows(reach, codes)).argmin(axis=1)
        C = np.array([view.decision.combinations(int(k))[rival] for k, rival in zip(codes, rivals, strict=True)])
        signs = np.where(np.broadcast_to(is_turned, leads.shape)[each, rivals], -1.0, 1.0)
        D[part] = steepest(signs[:, None] * (C @ view.coef) * weights, norm)
    return D * weights


def steepest(G, norm):
    """Return perturbations of length 1 along which linear functions with these gradients fall the most."""
    if norm == np.inf:
        return -np.sign(G)
    if norm == 2:
        return -G / np.maximum(lengths(G, 2), 1e-300)[:, None]
    D, each, top = np.zeros(G.shape), np.arange(len(G)), np.abs(G).argmax(axis=1)
    D[each, top] = -np.sign(G[each, top])
    return D


def descended(view, X, D, norm, weights, steps=5):
    """Return perturbations of the same sizes that follow the gradient of the smallest lead, and lower it where they can."""
    size = lengths(D / weights, norm)[:, None]

    def closest(Z):
        leads, C = np.zeros(len(Z)), np.zeros((len(Z), view.decision.n_scores))
        for part, _, (codes, own, is_turned) in view_at(view, Z).lead_blocks(0):
            each, rivals = np.arange(len(codes)), own.argmin(axis=1)
            signs = np.where(np.broadcast_to(is_turned, own.shape)[each, rivals], -1.0, 1.0)
            table = np.array([view.decision.combinations(k) for k in range(codes.max() + 1)])
            leads[part], C[part] = own[each, rivals], signs[:, None] * table[codes, rivals]
        return leads, C

    best, C = closest(X + D)
    for k in range(steps):
        toward = steepest(view.gradients(X + D, C) * weights, norm)
        new = D / weights / size + toward * 2.0 ** (1 - k)
        new = np.where(np.any(new, axis=1)[:, None], new, D / weights / size)
        new = new / lengths(new, norm)[:, None] * size * weights
        leads, combinations = closest(X + new)
        better = leads < best
        D, C = np.where(better[:, None], new, D), np.where(better[:, None], combinations, C)
        best = np.where(better, leads, best)
    return D


def attack_radius(model, X, norm, weights, n_attacks, rng):
    """Return how many rows moved within their radius were tried, and how many of them got another class."""
    found, view = certified_radius(model, X, norm=norm, weights=weights), view_of(model, X).model
    assert np.array_equal(found.predicted, model.predict(X))
    rows = np.flatnonzero((found.radius > 0) & (found.radius < FAR))
    tried = fallen = 0
    while tried < n_attacks and len(rows):
        some = rng.choice(rows, size=min(BATCH, n_attacks))
        radius = found.radius[some] * rng.choice([1.0, 0.999, rng.uniform()], size=len(some), p=[0.8, 0.1, 0.1])
        D = on_the_border(rng, (len(some), X.shape[1]), norm) * weights
        if isinstance(view, LinearModel):
            half = rng.uniform(size=len(some)) < 0.5
            D[half] = worst_directions(view, X[some[half]], norm, weights)
            D = D * radius[:, None]
        else:
            D = descended(view, X[some].astype(np.float64), D * radius[:, None], norm, weights)
        Z = (X[some] + D * (1 - 1e-12)).astype(X.dtype)
        # what was added is what is left after rounding
        moved = lengths((Z.astype(np.float64) - X[some].astype(np.float64)) / weights, norm)
        inside = moved * (1 + 1e-14) <= found.radius[some]
        fallen += int(np.sum(model.predict(Z)[inside] != found.predicted[some[inside]]))
        tried += int(np.sum(inside))
    return tried, fallen


def tightness(model, X, norm, weights):
    """Return how many rows of a linear model are moved just beyond their radius, and how many of them get another class."""
    found, view = certified_radius(model, X, norm=norm, weights=weights), view_of(model, X).model
    rows = np.flatnonzero((found.radius > 0) & np.isfinite(found.radius))
    D = worst_directions(view, X[rows], norm, weights) * found.radius[rows, None] * (1 + SLIGHTLY)
    return len(rows), int(np.sum(model.predict(X[rows] + D) != found.predicted[rows]))


def attack_intervals(model, X, n_attacks, rng):
    """The same within intervals: at random corners, and at the worst ones of linear models."""
    view, tried, fallen = view_of(model, X).model, 0, 0
    spread = SCALES * (0.5 if isinstance(view, LinearModel) else 0.05)
    while tried < n_attacks:
        some = rng.integers(len(X), size=min(BATCH, n_attacks))
        rows = X[some]
        lower, upper = (
            rows - rng.exponential(size=rows.shape) * spread,
            rows + rng.exponential(size=rows.shape) * spread,
        )
        found = certified_interval(model, rows, X_lower=lower, X_upper=upper)
        Z = np.where(rng.uniform(size=rows.shape) < 0.5, lower, upper)
        if isinstance(view, LinearModel):
            way = worst_directions(view, rows, np.inf, np.ones(X.shape[1]))
            Z = np.where(rng.uniform(size=(len(rows), 1)) < 0.7, np.where(way > 0, upper, lower), Z)
        fallen += int(np.sum((model.predict(Z) != found.predicted) & found.certified))
        tried += int(np.sum(found.certified))
    return tried, fallen


def attack_deletions(model, X, n_attacks, rng):
    """The same for deletions of as many features as a row survives, at random."""
    found, tried, fallen = certified_deletions(model, X), 0, 0
    rows = np.flatnonzero(found.survived > 0)
    while tried < n_attacks and len(rows):
        some = rng.choice(rows, size=min(BATCH, n_attacks))
        ranks = rng.uniform(size=(len(some), X.shape[1])).argsort(axis=1).argsort(axis=1)
        Z = np.where(ranks < found.survived[some, None], 0.0, X[some])
        fallen += int(np.sum(model.predict(Z) != found.predicted[some]))
        tried += len(some)
    return tried, fallen


def attack_bits(model, X, n_attacks, rng):
    """The same for weights that are off by half a step each, by chance or for the worst, one row at a time."""
    found, view, tried, fallen = safe_bits(model, X), view_of(model, X).model, 0, 0
    rows = np.flatnonzero(np.isfinite(found.bits))
    W, b = view.coef, view.intercept
    while tried < n_attacks and len(rows):
        some = rng.choice(rows, size=min(BATCH, n_attacks))
        half = 0.5 * np.abs(W).max() / (2.0 ** (found.bits[some] - 1) - 1)
        codes = np.concatenate([own.codes for _, _, own in view_at(view, X[some]).lead_blocks()])
        for signs in (rng.choice([-1.0, 1.0], size=(len(some), *W.shape)), None):
            if signs is None:
                scores = X[some] @ W.T + b
                away = -np.sign(scores) if len(W) == 1 else np.where(np.arange(len(W)) == codes[:, None], -1.0, 1.0)
                signs = away[:, :, None] * np.sign(X[some])[:, None, :]
            moved = np.einsum("nkj,nj->nk", W + half[:, None, None] * signs, X[some]) + b
            now = (moved[:, 0] > 0).astype(int) if len(W) == 1 else moved.argmax(axis=1)
            fallen += int(np.sum(now != codes))
            tried += len(some)
    return tried, fallen


def family_of(name, model, X):
    """Return which certificate a model has."""
    view = view_of(model, X).model
    if not isinstance(view, LinearModel):
        return "Fourier" if isinstance(view, FourierModel) else "RBF"
    return "linear" if len(view.coef) in (1, len(model.classes_)) and name != "libsvm" else "contests"


def families(rng, skipped=()):
    """Return fitted models with their rows by the certificate that they have."""
    found = {}
    for n_classes in (2, 4):
        X, y = data(rng, n_classes)
        for name, model in (linear_models() | kernel_models()).items():
            if name in skipped:
                continue
            own = fitted(model, X, y)
            found.setdefault(family_of(name, own, X), []).append((own, X))
    return found


def main(n_attacks, out=print, skipped=()):
    """Attack every kind at least so often; return the violations, the share of tight linear radii, and attacks by kind."""
    rng, began = np.random.default_rng(0), time.monotonic()
    models = families(rng, skipped)
    tried, fallen, near = {}, 0, np.zeros(2, dtype=int)

    def attacked(kind, attack, *options):
        nonlocal fallen
        count, violations = attack(*options, n_attacks=each, rng=rng)
        tried[kind] = tried.get(kind, 0) + count
        fallen += violations
        if violations:
            out(f"{kind}: {violations} violations by {options[0]}")

    for family, chosen in models.items():
        each = -(-n_attacks // (2 * len(chosen)))
        for norm in NORMS:
            for model, X in chosen:
                for weights in (np.ones(X.shape[1]), SCALES):
                    attacked(f"radius, {family}, norm {norm:g}", attack_radius, model, X, norm, weights)
                    if family == "linear":
                        near += tightness(model, X, norm, weights)
        each = -(-n_attacks // len(chosen))
        for model, X in chosen:
            attacked(f"intervals, {family}", attack_intervals, model, X)
            if family in ("linear", "contests"):
                attacked(f"deletions, {family}", attack_deletions, model, X)
            if family == "linear":
                attacked("bits, linear", attack_bits, model, X)
    for kind, count in tried.items():
        out(f"{kind:28} {count:10,} attacks")
    share = near[1] / near[0]
    out(f"{fallen} violations in {sum(tried.values()):,} attacks, {time.monotonic() - began:.0f} s")
    out(
        f"linear radii * (1 + {SLIGHTLY:g}): {near[1]:,} of {near[0]:,} closed-form attacks change the class ({share:.3%})"
    )
    return fallen, share, tried


if __name__ == "__main__":
    violations, tight, _ = main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
    sys.exit(int(violations > 0 or tight < 0.999))
