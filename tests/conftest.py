"""What any test may ask for: toy data, problems made of them, and every loss, set and solver there is."""

import inspect

import numpy as np
import pytest

import holdfast.losses
import holdfast.solvers  # noqa: F401  (its solvers are found through their base class)
from holdfast._core.loss import Loss
from holdfast._core.solver import Solver
from holdfast._core.uncertainty import UncertaintySet
from holdfast._data import rows_of
from holdfast._problems.margin_scale import MarginScaleProblem
from holdfast._problems.pairwise import PairwiseProblem
from holdfast.datasets import load_from_folder
from holdfast.uncertainty import GaussianNoise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Make all but every n-th case of tests that are marked `thin(n)` slow."""
    seen = {}
    for item in items:
        if thin := item.get_closest_marker("thin"):
            seen[item.function] = seen.get(item.function, -1) + 1
            if seen[item.function] % thin.args[0]:
                item.add_marker(pytest.mark.slow)


def concrete_subclasses(cls):
    """Return every class below `cls` that can be made, in the order of their names."""
    found = {cls} if cls.__module__.startswith("holdfast.") and not inspect.isabstract(cls) else set()
    for child in cls.__subclasses__():
        found.update(concrete_subclasses(child))
    return sorted(found, key=lambda c: c.__name__)


def examples_of(cls):
    return [example for found in concrete_subclasses(cls) for example in found.examples()]


ALL_LOSSES = examples_of(Loss)
LOSSES = [loss for loss in ALL_LOSSES if not loss.is_worst_case and np.isfinite(loss.dual_limit)]
WORST_CASES = [loss for loss in ALL_LOSSES if loss.is_worst_case]
SETS = examples_of(UncertaintySet)
SOLVERS = examples_of(Solver)


def _name_of_set(pair):
    uncertainty, metadata = pair
    return "+".join([repr(uncertainty), *metadata])


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    """Every loss that is averaged over noise and rises no faster than the deficit."""
    return request.param


@pytest.fixture
def losses():
    """All of them, for a test that goes through them itself."""
    return LOSSES


@pytest.fixture(params=ALL_LOSSES, ids=repr)
def any_loss(request):
    """Every loss there is."""
    return request.param


@pytest.fixture(params=WORST_CASES, ids=repr)
def worst_case(request):
    """Every loss at the worst point of a set."""
    return request.param


@pytest.fixture(params=[loss for loss in LOSSES if loss.is_homogeneous], ids=repr)
def perspective(request):
    """Every loss of the form t f(u / t)."""
    return request.param


@pytest.fixture(params=[loss for loss in LOSSES if loss.has_dual], ids=repr)
def dual_loss(request):
    """Every loss whose dual form is known."""
    return request.param


@pytest.fixture(params=SETS, ids=_name_of_set)
def uncertainty(request):
    """Every set, as a pair (set, metadata) for 5 rows of 3 features."""
    return request.param


@pytest.fixture
def bound(uncertainty):
    """Every set, bound to 5 rows of 3 features."""
    chosen, metadata = uncertainty
    return chosen.at(chosen.example_rows(), metadata)


@pytest.fixture(params=concrete_subclasses(UncertaintySet), ids=lambda cls: cls.__name__)
def uncertainties(request):
    """Every class of sets: its examples one after the other, as `uncertainty` gives them to one test each."""

    def examples():
        for chosen, metadata in request.param.examples():
            print(_name_of_set((chosen, metadata)))  # a test that fails shows this, the last line being the culprit
            yield chosen, metadata

    return examples()


@pytest.fixture
def bounds(uncertainties):
    """Every class of sets: its examples one after the other, each bound to 5 rows of 3 features."""
    return (chosen.at(chosen.example_rows(), metadata) for chosen, metadata in uncertainties)


@pytest.fixture
def smooth_bounds(bounds):
    """The same, and after each of them the same set with noise on the score added."""
    return (each for bound in bounds for each in (bound, bound.smoothed(0.6)))


@pytest.fixture(params=SOLVERS, ids=repr)
def solver(request):
    """Every solver."""
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


def gaussian_classes(rng, n=40, d=3, *, separation=1.0, positives=None, offset=0.3):
    """Return X and y = -1, +1: unit Gaussians whose means are 2 * separation apart along a random direction."""
    y = np.where(np.arange(n) < (n // 2 if positives is None else positives), 1.0, -1.0)
    rng.shuffle(y)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    return rng.normal(size=(n, d)) + separation * np.outer(y, direction) + offset, y


@pytest.fixture
def two_classes(rng):
    """A function that draws two Gaussian classes of chosen size, separation, imbalance and offset."""
    return lambda *args, **options: gaussian_classes(rng, *args, **options)


@pytest.fixture
def draw_classes():
    """The same, from a generator of one's own."""
    return gaussian_classes


@pytest.fixture
def make_problem():
    """A function that makes a problem of data, a loss and a noise (a number, a set, or a bound set)."""

    def make(X, y, loss, noise=0.7, *, weights=None, metadata=None, **options):
        rows = rows_of(X)
        if np.isscalar(noise):
            noise = GaussianNoise(std=noise)
        if isinstance(noise, UncertaintySet):
            noise = noise.at(X, metadata or {})
        weights = np.ones(len(y)) if weights is None else weights
        return MarginScaleProblem(rows, y, weights, loss, noise, **options)

    return make


@pytest.fixture
def load_data():
    """A function that loads a data set by name, or skips the test where there is none."""

    def load(name):
        try:
            return load_from_folder(name)
        except FileNotFoundError as missing:
            pytest.skip(str(missing))

    return load


@pytest.fixture
def several_classes(rng):
    """A function that draws unit Gaussian classes of chosen sizes around random means; returns X and y = 0, 1, ..."""

    def draw(sizes=(14, 11, 9), d=3, *, separation=1.5):
        y = np.repeat(np.arange(len(sizes)), sizes)
        rng.shuffle(y)
        return rng.normal(size=(len(y), d)) + separation * rng.normal(size=(len(sizes), d))[y] + 0.3, y

    return draw


@pytest.fixture
def make_pairwise():
    """A function that makes the problem of several classes, as `make_problem` does that of two."""

    def make(X, y, loss, noise=0.7, *, weights=None, metadata=None, **options):
        rows = rows_of(X)
        noise = GaussianNoise(std=noise) if np.isscalar(noise) else noise
        bound = noise.at(X, metadata or {})
        return PairwiseProblem(rows, y, np.ones(len(y)) if weights is None else weights, loss, bound, **options)

    return make
