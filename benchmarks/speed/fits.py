"""Fits under Gaussian noise: dense, small, sparse, of several classes, by stochastic steps, with a kernel."""

from functools import partial

import numpy as np
from sklearn.datasets import make_classification, make_moons
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC, LinearSVC

from holdfast import GaussianRobustClassifier
from holdfast._core import compiled
from holdfast._proofs.certificate import certificate
from holdfast.solvers import SGD
from speed import data as tables
from speed.case import Case, Data, Peer, Section, Way, accuracy, hinge, logistic, ours, squared_hinge

LOSSES = ("logistic", "hinge")
NEWTON = {"solver": "newton-cholesky", "max_iter": 1000}


def fitted(data, noise, loss, **options):
    return ours(f"{loss} loss", GaussianRobustClassifier(noise, loss=loss), data, **options)


def proof(data, noise, loss):
    """The part of a fit that recomputes its gap from the data."""
    model = GaussianRobustClassifier(noise, loss=loss).fit(data.X, data.y)

    def run():
        [problem] = model._problems(data.X, data.y, None, {})
        return certificate(problem, model.coef_[0], model.intercept_[0])

    return Way(f"{loss} loss, its proof alone", run, lambda found: f"gap {found.gap:.0e}")


def numpy_alone(way):
    """The same without kernels."""

    def run():
        worthwhile, compiled.WORTHWHILE = compiled.WORTHWHILE, np.inf
        try:
            return way.run()
        finally:
            compiled.WORTHWHILE = worthwhile

    return Way(f"{way.name}, NumPy alone", run, way.reached)


def dense_ways(data, noise=0.1):
    both = [fitted(data, noise, loss) for loss in LOSSES]
    yield from both
    if data.X.size >= compiled.WORTHWHILE:
        yield numpy_alone(both[1])
    yield from (proof(data, noise, loss) for loss in LOSSES)
    yield from Peer("LR lbfgs", LogisticRegression, logistic()).ways(data)
    if data.X.shape[1] <= 500:
        yield from Peer("LR newton-cholesky", LogisticRegression, logistic(), NEWTON).ways(data)
    if data.X.size <= 2e6:  # a fit of larger data takes seconds
        yield from Peer("LinearSVC primal", LinearSVC, squared_hinge(), {"dual": False}).ways(data)


def small_ways(data):
    yield from (fitted(data, 0.1, loss) for loss in LOSSES)
    yield Way("LogisticRegression()", partial(LogisticRegression().fit, data.X, data.y))


def shape_of(n, d):
    return f"{n:,} x {d:,}".replace(",", " ")


def typed(name, data, ways, **options):
    """Return the case in float64 and in float32."""
    for dtype in (np.float64, np.float32):
        yield Case(f"{name}, {dtype.__name__}", tables.of_type(data, dtype), ways, **options)


def dense_cases():
    for n, d in ((100_000, 100), (1_000_000, 50), (20_000, 2000)):
        data = tables.drawn(tables.correlated, n, d)
        yield from typed(shape_of(n, d), data, dense_ways, is_quick=n == 100_000)
    yield Case("breast cancer 569 x 30", tables.loaded(tables.breast_cancer), dense_ways, is_quick=True)
    if tables.HAS_FOLDER:
        yield from typed("spambase 4601 x 57", tables.loaded(tables.spambase), dense_ways)
        yield from typed("USPS 3 or 5, 1540 x 256", tables.loaded(tables.usps_3_or_5), dense_ways)


def small_cases():
    for n, d in ((500, 10), (2000, 20), (10_000, 50)):
        yield from typed(shape_of(n, d), tables.drawn(tables.correlated, n, d), small_ways, is_quick=True)


# sparse


def ridge_of(model, data):
    """Return the ridge that noise of deviation s amounts to: s sum_i p(z_i) / |w|, with z = (1 - y f) / (s |w|)."""
    if not (size := float(np.linalg.norm(model.coef_))):
        return 1.0  # the noise outweighs the data
    z = (1 - data.y * model.decision_function(data.X)) / (model.noise * size)
    return model.noise * float(np.exp(-0.5 * z**2).sum()) / np.sqrt(2 * np.pi) / size


def sparse_ways(data, noise, loss):
    yield fitted(data, noise, loss)
    model = GaussianRobustClassifier(noise, loss=loss, solver="quasi_newton")
    yield ours(f"{loss} loss, quasi-Newton", model, data)
    yield proof(data, noise, loss)
    if loss == "logistic":
        objective = logistic(has_ridge_on_intercept=True)
        yield from Peer("LR liblinear", LogisticRegression, objective, {"solver": "liblinear"}, patience=4).ways(data)
        return
    C = 1 / ridge_of(GaussianRobustClassifier(noise, loss=loss).fit(data.X, data.y), data)
    for name, objective, options in (
        ("LinearSVC dual", squared_hinge(C), {"dual": True, "random_state": 0}),
        ("LinearSVC primal", squared_hinge(C), {"dual": False}),
        ("LinearSVC dual, hinge", hinge(C), {"loss": "hinge", "dual": True, "random_state": 0}),
    ):
        yield from Peer(f"{name}, C={C:.2g}", LinearSVC, objective, {"C": C} | options, patience=4).ways(data)


def sparse_cases():
    few = tables.drawn(tables.words, 5000, 5000)
    chosen = [("words 5 000 x 5 000", few, 0.01)]
    chosen += [
        ("words 100 000 x 50 000", tables.drawn(tables.words, 100_000, 50_000), noise) for noise in (0.01, 0.005)
    ]
    if tables.HAS_FOLDER:
        chosen += [
            ("spambase 4601 x 57", tables.loaded(tables.sparse_spambase), 0.1),
            ("splice, one-hot, 3190 x 287", tables.loaded(tables.sparse_splice), 0.1),
            ("MNIST 4 or 7, 14 117 x 784", tables.loaded(tables.sparse_mnist_4_or_7), 0.03),
        ]
    for name, data, noise in chosen:
        for loss in LOSSES:
            ways = partial(sparse_ways, noise=noise, loss=loss)
            yield Case(f"{name}, noise {noise}, {loss}", data, ways, is_quick=data is few)


# several classes


def classes_ways(data, noise):
    told, C = accuracy(data), 4 / (len(data.y) * noise**2)
    yield from (fitted(data, noise, loss, told=told) for loss in LOSSES)
    apart = GaussianRobustClassifier(noise, multiclass="ovr")
    yield ours("logistic loss, one against the rest", apart, data, told=told)
    yield from Peer("LR lbfgs", LogisticRegression, logistic(C), {"C": C}, told).ways(data)
    yield from Peer("LinearSVC primal", LinearSVC, squared_hinge(C), {"C": C, "dual": False}, told).ways(data)


def classes_cases():
    chosen = [("digits 1797 x 64, 10 classes", tables.digits, True)]
    if tables.HAS_FOLDER:
        chosen += [
            ("splice 3190 x 287, 3 classes", tables.splice, False),
            ("USPS 3000 x 256, 10 classes", partial(tables.usps, 3000), False),
            ("USPS 7291 x 256, 10 classes", tables.usps, False),
        ]
    for name, load, is_quick in chosen:
        for noise in (0.1, 0.5):
            ways = partial(classes_ways, noise=noise)
            yield Case(f"{name}, noise {noise}", tables.loaded(load), ways, is_quick=is_quick and noise == 0.1)


# stochastic steps


def stochastic_ways(data, epochs=20):
    squares = np.square(data.X).mean() if isinstance(data.X, np.ndarray) else np.mean(data.X.data**2)
    noise = 0.3 * float(np.sqrt(squares))
    for loss in ("hinge", "two_point", "logistic"):
        model = GaussianRobustClassifier(noise, loss=loss, solver=SGD(epochs=epochs), random_state=0)
        best = GaussianRobustClassifier(noise, loss=loss).fit(data.X, data.y).objective_
        yield ours(
            f"{loss} loss, {epochs} epochs",
            model,
            data,
            tol=np.inf,
            told=lambda found, best=best: f"excess {found.objective_ / best - 1:.0e}",
        )
        yield fitted(data, noise, loss, tol=np.inf)
    theirs = SGDClassifier(loss="hinge", average=True, max_iter=epochs, tol=None, random_state=0)
    yield Way(f"SGDClassifier, {epochs} epochs, averaged", partial(theirs.fit, data.X, data.y))


def stochastic_cases():
    for n, is_quick in ((10_000, True), (100_000, False)):
        dense, text = tables.drawn(tables.gaussian, n, 100), tables.drawn(tables.words, n, 50_000)
        yield Case(shape_of(n, 100), dense, stochastic_ways, is_quick=is_quick)
        if not is_quick:
            yield Case(f"words {shape_of(n, 50_000)}", text, stochastic_ways)


# kernels

NOISES, CS, WIDTHS = (0.003, 0.01, 0.03, 0.1), (0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0)
N_TEST, N_CHOICE = 5000, 1500


def moons(n, rng):
    """Two half moons with noise, turned into 10 dimensions together with 8 columns of noise."""
    X, y = make_moons(n, noise=0.25, random_state=0)
    Q, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    return np.hstack([X, 0.2 * rng.normal(size=(n, 8))]) @ Q, y


def shells(n, rng):
    """Classes by the length of the row, 10 % of the labels wrong."""
    X = rng.normal(size=(n, 10))
    return X, (np.linalg.norm(X, axis=1) > 3.06).astype(int) ^ (rng.uniform(size=n) < 0.1)


def board(n, rng):
    """Squares of a 4 x 4 board with 8 columns of noise beside it, 5 % of the labels wrong."""
    X = rng.uniform(-2, 2, size=(n, 2))
    y = np.floor(X).sum(axis=1).astype(int) % 2 ^ (rng.uniform(size=n) < 0.05)
    return np.hstack([X, 0.2 * rng.normal(size=(n, 8))]), y


def clusters(n, rng):
    """20 features, 8 of them informative, 12 clusters."""
    options = {"n_informative": 8, "n_redundant": 4, "n_clusters_per_class": 6, "flip_y": 0.02, "random_state": 0}
    X, y = make_classification(n, 20, **options)
    return X / X.std(axis=0), y


def split(X, y, n):
    """Return n rows, those they are tested on beside them, and a usual gamma."""
    gamma = 1 / np.mean(np.sum((X[:n] - X[:n].mean(axis=0)) ** 2, axis=1))
    return Data(X[:n], y[:n], {"test": (X[n : n + N_TEST], y[n : n + N_TEST]), "gamma": gamma})


def with_test_rows(n, make):
    return split(*make(n + N_TEST, np.random.default_rng(0)), n)


def images(n, load):
    X, y = load()
    order = np.random.default_rng(0).permutation(len(X))
    return split(X[order] - X.mean(axis=0), y[order], n)


def kernel_ways(data, n_landmarks, has_peer):
    """Both with the settings that are best in three folds of about N_CHOICE training rows; accuracy on new rows."""
    X, y, told = data
    stride = max(1, len(X) // N_CHOICE)
    gammas = told["gamma"] * np.array(WIDTHS)

    def chosen(model, grid):
        search = GridSearchCV(model, grid | {"gamma": gammas}, cv=StratifiedKFold(3), refit=False)
        return model.set_params(**search.fit(X[::stride], y[::stride]).best_params_)

    def accurate(found):
        share = found.score(*told["test"])
        return f"accuracy {100 * share:.1f} ({100 * np.sqrt(share * (1 - share) / len(told['test'][1])):.1f}) %"

    options = {"loss": "hinge", "kernel": "rbf", "n_landmarks": n_landmarks, "random_state": 0}
    model = chosen(GaussianRobustClassifier(0.1, **options), {"noise": NOISES})
    name = "exact" if n_landmarks is None else f"{n_landmarks} landmarks"
    yield ours(f"{name}, noise {model.noise}", model, Data(X, y), told=accurate)
    if has_peer:
        model = chosen(SVC(cache_size=500), {"C": CS})
        yield Way(f"SVC, C={model.C:g}", partial(model.fit, X, y), accurate)


def kernel_cases():
    exact = partial(kernel_ways, n_landmarks=None, has_peer=True)
    for n, makers in ((10_000, (moons, shells, board, clusters)), (100_000, (moons, shells))):
        near = partial(kernel_ways, n_landmarks=500, has_peer=n == 10_000)
        for make in makers:
            yield Case(f"{make.__name__}, {n} rows", tables.drawn(with_test_rows, n, make=make), near)
    yield Case("shells, 2000 rows", tables.drawn(with_test_rows, 2000, make=shells), exact, is_quick=True)
    if tables.HAS_FOLDER:
        for name, load, n in (("MNIST 4 or 9", tables.mnist_4_or_9, 2000), ("USPS 3 or 5", tables.usps_pixels, 1200)):
            yield Case(f"{name}, {n} rows", tables.drawn(images, n, load=load), exact)


SECTIONS = {
    "dense": Section(
        "Gaussian noise, dense rows",
        "`GaussianRobustClassifier(0.1)`, noise of 0.1 of a feature's standard deviation; the logistic loss "
        "has a ridge of 1, the hinge none. The peers know of no noise. The proof is the part of the fit that "
        "recomputes its gap from the data.",
        list(dense_cases()),
    ),
    "small": Section(
        "Small fits", "The same on small data, beside `LogisticRegression()` as it is.", list(small_cases())
    ),
    "sparse": Section(
        "Gaussian noise, sparse rows",
        "C is the inverse of the ridge that the noise amounts to at our optimum (hinge), or that we add "
        "(logistic loss).",
        list(sparse_cases()),
    ),
    "classes": Section(
        "Several classes",
        "Rows are centred and divided by the root mean square of their norms; the noise is in these units. The "
        "logistic loss is fitted to all classes at once. "
        "The C of the peers is 4 / (n noise^2): to second order, noise adds that ridge at most to the "
        "logistic loss. Accuracy is on the training rows.",
        list(classes_cases()),
    ),
    "stochastic": Section(
        "Stochastic steps",
        "Both take the same number of epochs over the same rows and average; ours then proves its gap. "
        "`excess` is how far the objective lies above that of the batch solver, the line below. The noise is "
        "0.3 of the rms of the nonzero entries.",
        list(stochastic_cases()),
    ),
    "kernel": Section(
        "Kernels",
        '`GaussianRobustClassifier(noise, loss="hinge", kernel="rbf")` with landmarks (Nystroem) or exact, '
        "beside SVC with a cache of 500 MB. Settings of both are chosen by accuracy in three folds of about "
        "1500 training rows. Accuracy is on 5000 new rows. With landmarks the gap speaks of Nystroem's "
        "kernel.",
        list(kernel_cases()),
    ),
}
