"""Errors that are larger than the rows vary are named; right ones never are."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import (
    Box,
    Ellipsoid,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    IntervalBox,
    MinimaxProbabilityClassifier,
    NoiseCopies,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SpreadImputer,
    make_uncertain_pipeline,
)
from holdfast.datasets import load_breast_cancer_errors
from holdfast.estimators import noise_path, radius_path
from holdfast.estimators.units import FEW_ROWS, warn_of_units
from holdfast.exceptions import UnitsWarning

CELLS = load_breast_cancer_errors()


def _warned(X, **metadata):
    """Return what is said of errors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_units(X, metadata, "fit")
    return [str(one.message) for one in caught if one.category is UnitsWarning]


def _ways(X, S):
    """Return the same errors in all ways to state them."""
    return [
        {"X_std": S},
        {"X_std": sparse.csr_array(S)},
        {"X_cov": S[:, :, None] ** 2 * np.eye(X.shape[1])},
        {"X_factor": S[:, :, None] * np.eye(X.shape[1])},
        {"X_lower": X - S, "X_upper": X + S},
    ]


def test_real_errors_are_no_surprise_in_any_units_or_split():
    X, S, y, _ = CELLS
    rng = np.random.default_rng(0)
    for factor in (1.0, 1e-3, 1e3, 1 / X.std(axis=0)):
        for metadata in _ways(X * factor, S * factor):
            assert not _warned(X * factor, **metadata)
    for _ in range(50):
        rows = rng.choice(len(X), FEW_ROWS, replace=False)
        assert not _warned(X[rows], X_std=S[rows])
    for label in (0, 1):
        assert not _warned(X[y == label], X_std=S[y == label])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("usual", [-1.0, 0.0])
def test_the_spread_of_few_rows_is_not_taken_for_that_of_a_column(form, usual):
    # pixels at the rim of pictures are blank but for a few, and have errors of some share of their contrast
    rng = np.random.default_rng(0)
    X = np.full((2000, 3), usual)
    X[:2, 0], X[:, 1], X[:1500, 2] = usual + 0.2, rng.normal(size=2000), usual + rng.normal(size=1500)
    S = np.full(X.shape, 0.05)
    assert not _warned(form(X), X_std=form(S))
    (message,) = _warned(form(X), X_std=form(100 * S))
    assert "in 2 of 3 columns: 1, 2." in message


def test_features_of_nothing_but_noise_are_no_surprise():
    # they vary by what their errors are, give or take
    for seed in range(200):
        rng = np.random.default_rng(seed)
        for n in (FEW_ROWS, 100):
            S = rng.gamma(4.0, size=(n, 5))
            assert not _warned(S * rng.normal(size=S.shape), X_std=S)


def test_wrong_units_are_named_however_errors_are_stated():
    X, S, *_ = CELLS
    for metadata in _ways(X, 1000 * S):
        (message,) = _warned(X, **metadata)
        assert "in 10 of 10 columns: 0, 1, 2, 3, 4, ..." in message
        assert "Likely causes" in message
    assert _warned(sparse.csr_array(X), X_std=sparse.csr_array(1000 * S))
    metres = np.where(np.arange(10) == 3, 1e6, 1.0)
    (message,) = _warned(X, X_std=S * metres)
    assert "in 1 of 10 columns: 3." in message
    # raw errors of standardised rows, variances for deviations, the two swapped
    assert "columns: 2, 3." in _warned(StandardScaler().fit_transform(X), X_std=S)[0]
    assert "columns: 1, 2, 3." in _warned(10 * X, X_std=np.square(10 * S))[0]
    assert "in 10 of 10 columns" in _warned(S, X_std=X)[0]


def test_what_cannot_be_judged_is_left_alone():
    X, S, *_ = CELLS
    assert not _warned(X[: FEW_ROWS - 1], X_std=1000 * S[: FEW_ROWS - 1])
    constant = np.column_stack([X[:, 0], np.full(len(X), 0.1)])
    assert not _warned(constant, X_std=np.column_stack([S[:, 0], np.full(len(X), 5.0)]))
    assert not _warned(X, X_radius=np.full(len(X), 1e9))
    few = np.where(np.arange(len(X))[:, None] < 200, 1000 * S, 0.0)
    assert not _warned(X, X_std=few)


@pytest.mark.parametrize(
    "fit",
    [
        lambda X, y, S: GaussianRobustClassifier().fit(X, y, X_std=S),
        lambda X, y, S: GaussianRobustClassifier(4.0).fit(X, y, X_factor=S[:, :, None]),
        lambda X, y, S: GaussianRobustClassifierCV(alphas=[1.0], cv=2).fit(X, y, X_std=S),
        lambda X, y, S: noise_path(X, y, [1.0], X_std=S),
        lambda X, y, S: RobustLinearClassifier(Box()).fit(X, y, X_std=S),
        lambda X, y, S: RobustLinearClassifierCV([0.1], uncertainty=Ellipsoid(), loss="logistic", cv=2).fit(
            X, y, X_std=S
        ),
        lambda X, y, S: radius_path(X, y, [0.1], uncertainty=IntervalBox(), X_lower=X - S, X_upper=X + S),
        lambda X, y, S: MinimaxProbabilityClassifier(Box()).fit(X, y, X_std=S),
        lambda X, y, S: NoiseCopies(LogisticRegression(), 2).fit(X, y, X_std=S),
        lambda X, y, S: make_pipeline(StandardScaler(), GaussianRobustClassifier()).fit(
            X, y, gaussianrobustclassifier__X_std=S
        ),
        lambda X, y, S: make_uncertain_pipeline(StandardScaler(), RobustLinearClassifier(Box())).fit(X, y, X_std=S),
    ],
)
def test_every_fit_says_so_once_at_the_line_that_called_it(fit):
    X, S, y = (part[::5] for part in (CELLS.X / CELLS.X.std(axis=0), CELLS.X_std / CELLS.X.std(axis=0), CELLS.y))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(X, y, np.where(np.arange(10) == 3, 5.0, S))
    (said,) = (one for one in caught if one.category is UnitsWarning)
    assert "1 of 10 columns: 3." in str(said.message)
    assert "site-packages" in said.filename or said.filename == __file__


def test_a_factor_is_meant():
    X, S, y, _ = CELLS
    X, S, large = X / X.std(axis=0), S / X.std(axis=0), 5.0 * np.ones_like(S)
    GaussianRobustClassifier(4.0).fit(X, y, X_std=S)
    for model in (
        GaussianRobustClassifier(0.1),
        RobustLinearClassifier(Box(0.02)),
        RobustLinearClassifier(Box(0.1, half_widths=1.0) + Ellipsoid(0.02)),
        MinimaxProbabilityClassifier(Box(0.02)),
        make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier(0.1)),
    ):
        model.fit(X, y, X_std=large)


def test_columns_of_frames_are_named_and_pipelines_speak_of_the_columns_they_are_given():
    pandas = pytest.importorskip("pandas")
    X, S = (pandas.DataFrame(part, columns=CELLS.feature_names) for part in (CELLS.X, CELLS.X_std))
    wrong = S.assign(**{X.columns[3]: 1e4})
    with pytest.warns(UnitsWarning, match=f"1 of 10 columns: '{X.columns[3]}'"):
        RobustLinearClassifier(Box()).fit(X / X.std(), CELLS.y, X_std=wrong / X.std())
    for pipe in (
        make_uncertain_pipeline(StandardScaler(), GaussianRobustClassifier()),
        make_uncertain_pipeline(SpreadImputer(), StandardScaler(), RobustLinearClassifier(Box())),
    ):
        pipe.fit(X, CELLS.y, X_std=S)  # right, so nothing is said
        with pytest.warns(UnitsWarning, match=f"1 of 10 columns: '{X.columns[3]}'"):
            pipe.fit(X, CELLS.y, X_std=wrong)


def test_what_imputers_fill_in_may_be_as_uncertain_as_its_column():
    X = CELLS.X[:200].copy()
    X[:150, 0] = np.nan
    model = RobustLinearClassifier(Box(0.0))
    pipe = make_uncertain_pipeline(SpreadImputer(spread="range"), StandardScaler(), model).fit(X, CELLS.y[:200])
    carried = pipe.carried(X, Box(0.0))[1]
    assert _warned(pipe[:-1].transform(X), **carried)  # it would be said of the rows that the last step is given
