import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from holdfast import Ball, Box, Ellipsoid, GaussianNoise, IntervalBox, RobustLinearClassifier, RobustLinearClassifierCV
from holdfast.display import (
    CertifiedAccuracyDisplay,
    DecisionUncertaintyDisplay,
    FeatureFragilityDisplay,
    NoisePathDisplay,
    RobustnessCurveDisplay,
)
from holdfast.estimators import noise_path, radius_path
from holdfast.evaluate import (
    certified_radius,
    flip_probability,
    robustness_curve,
    worst_case,
)


@pytest.fixture(autouse=True)
def closed():
    """No picture is open before or after."""
    mpl.use("agg")
    plt.close("all")
    yield
    plt.close("all")


def data(n=40, d=2, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(n, d)) + 2 * rng.normal(size=(classes, d))[y], y


@pytest.fixture(scope="module")
def made():
    """One way to make each display, by a function of the axes."""
    X, y = data()
    linear, other = LogisticRegression().fit(X, y), LogisticRegression(C=0.01).fit(X, y)
    search = RobustLinearClassifierCV([0.1, 1.0], cv=3).fit(X, y)
    both = {"one": linear, "other": other}
    path = noise_path(X, y, noises=[0.1, 0.5, 1.0])
    return {
        "curve": lambda ax: RobustnessCurveDisplay.from_estimators(both, X, y, Box(1.0), [0, 1], ax=ax, n_repeats=2),
        "certified": lambda ax: CertifiedAccuracyDisplay.from_estimators(both, X, y, ax=ax),
        "decisions": lambda ax: DecisionUncertaintyDisplay.from_estimator(linear, X, y, Ball(0.3), ax=ax),
        "features": lambda ax: FeatureFragilityDisplay.from_estimators(both, X_std=[1.0, 2.0], ax=ax),
        "weights": lambda ax: NoisePathDisplay.from_path(path, ax=ax),
        "search": lambda ax: NoisePathDisplay.from_estimator(search, ax=ax),
    }


KINDS = ["curve", "certified", "decisions", "features", "weights", "search"]


@pytest.mark.parametrize("kind", KINDS)
def test_given_axes_are_used_and_pyplot_is_left_alone(made, kind):
    settings = dict(mpl.rcParams)
    figure = Figure()
    ax, empty = figure.subplots(1, 2)
    display = made[kind](ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert ax.has_data()
    assert not empty.has_data()
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == settings
    assert ax.get_xlabel()
    assert ax.get_ylabel() or ax.get_yticklabels()
    assert ax.get_legend() is not None


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", KINDS)
def test_without_axes_one_figure_is_made_and_plot_draws_another(made, kind):
    display = made[kind](None)
    assert plt.get_fignums() == [display.figure_.number]
    first = display.figure_
    assert display.plot(**({"kind": "accuracy"} if kind == "search" else {})) is display
    assert display.figure_ is not first
    assert len(plt.get_fignums()) == 2
    display.figure_.canvas.draw()


def test_matplotlib_is_loaded_by_plots_only():
    code = "import sys, holdfast.display, holdfast.evaluate; print('matplotlib' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_the_curve_shows_means_errors_and_what_is_certified():
    X, y = data()
    models = {"linear": LogisticRegression().fit(X, y), "tree": DecisionTreeClassifier(max_depth=2).fit(X, y)}
    curve = robustness_curve(models, X, y, Box(0.5), [0, 1, 2], n_repeats=4)
    display = RobustnessCurveDisplay.from_curve(curve)
    assert display.curve is curve
    for container, mean, error in zip(display.lines_, curve.mean, curve.standard_error, strict=True):
        line, _, (bars,) = container
        assert_allclose(line.get_ydata(), mean)
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        assert_allclose(ends[:, 1] - ends[:, 0], 2 * error, atol=1e-12)
    [certified] = display.certified_lines_
    assert_allclose(certified.get_ydata(), curve.certified[0])
    assert display.ax_.get_xlabel() == "multiple of the stated half-widths"
    assert display.ax_.get_ylabel() == "accuracy (%)"
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["linear", "tree", "certified: a proved lower bound, in the same colour"]
    assert not RobustnessCurveDisplay(curve).plot(show_certified=False).certified_lines_
    red = RobustnessCurveDisplay(curve).plot(curve_kwargs={"linewidth": 5})
    assert red.lines_[0][0].get_linewidth() == 5
    alone = RobustnessCurveDisplay.from_estimator(
        models["tree"], X, y, GaussianNoise(1.0), [1.0], name="T", n_repeats=2
    )
    assert alone.curve.models == ("T",)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_certified_accuracy_is_the_share_of_right_rows_with_such_a_radius(norm):
    X, y = data(classes=3)
    model = LogisticRegression().fit(X, y)
    found = certified_radius(model, X, norm=norm, weights=[1.0, 2.0])
    display = CertifiedAccuracyDisplay.from_estimator(
        model, X, y, norm=norm, weights=[1.0, 2.0], radii=[0.5, 0.1], unit="apples", name="L"
    )
    assert_array_equal(display.radii, [0.1, 0.5])
    expected = [np.mean((found.predicted == y) & (found.radius >= r)) for r in (0.1, 0.5)]
    assert_allclose(display.accuracy, [expected])
    assert display.ax_.get_xlabel().endswith("norm, in apples")
    assert display.models == ("L",)
    assert display.methods == (found.method,)
    automatic = CertifiedAccuracyDisplay.from_estimator(model, X, y, norm=norm)
    assert automatic.accuracy[0, 0] == model.score(X, y)
    assert np.all(np.diff(automatic.accuracy) <= 0)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [LogisticRegression(), SVC(), DecisionTreeClassifier(max_depth=3)], ids=repr)
def test_decisions_regions_sets_and_rims_are_those_of_the_model(kind, classes):
    X, y = data(classes=classes)
    S = np.random.default_rng(0).uniform(0.1, 0.6, X.shape)
    model = kind.fit(X, y)
    display = DecisionUncertaintyDisplay.from_estimator(model, X, y, Box(), X_std=S, grid_resolution=40)
    grid = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    assert_array_equal(display.response.ravel(), model.predict(grid))
    assert_array_equal(display.leads.argmax(axis=0), display.response)
    assert display.boundaries_
    assert_allclose(display.outlines[0].max(axis=1), X + S)
    assert_allclose(display.outlines[0].min(axis=1), X - S)
    assert_array_equal(display.may_change, worst_case(model, X, model.predict(X), Box(), X_std=S).is_wrong)
    assert len(display.points_) == classes
    assert sum(len(points.get_offsets()) for points in display.points_) == len(X)
    low, high = display.xx0.min(), display.xx0.max()
    assert low < display.outlines[..., 0].min() < display.outlines[..., 0].max() < high


def test_outlines_are_on_the_edges_of_any_set():
    X, y = data()
    model = LogisticRegression().fit(X, y)
    shape = np.array([[0.5, 0.3], [0.3, 0.4]])
    found = DecisionUncertaintyDisplay.from_estimator(model, X, y, Ellipsoid(0.7, shape=shape), grid_resolution=20)
    moves = found.outlines[0] - X[:, None]
    assert_allclose(np.einsum("nki,ij,nkj->nk", moves, np.linalg.inv(shape), moves), 0.49)
    one_sided = DecisionUncertaintyDisplay.from_estimator(model, X, y, IntervalBox(-0.1, 0.4), grid_resolution=20)
    assert_allclose(one_sided.outlines[0].max(axis=1) - X, 0.4)
    assert_allclose(one_sided.outlines[0].min(axis=1) - X, -0.1)


def test_noise_is_shown_as_ellipses_of_one_and_two_deviations():
    X, y = data()
    model = LogisticRegression().fit(X, y)
    S = np.random.default_rng(0).uniform(0.1, 0.9, X.shape)
    display = DecisionUncertaintyDisplay.from_estimator(model, X, y, GaussianNoise(), X_std=S, grid_resolution=20)
    lengths = np.linalg.norm((display.outlines - X[:, None]) / S[:, None], axis=-1)
    assert_allclose(lengths[0], 2)
    assert_allclose(lengths[1], 1)
    assert_array_equal(display.may_change, flip_probability(model, X, X_std=S).probability > 0.05)
    assert "5%" in display.ax_.get_title()


def test_a_missing_rim_is_called_a_proof_only_where_it_is_one():
    X, y = data(60, seed=3)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    found = worst_case(forest, X, forest.predict(X), Box(0.5))
    assert not found.is_exact
    title = DecisionUncertaintyDisplay.from_estimator(forest, X, y, Box(0.5), grid_resolution=20).ax_.get_title()
    assert "none was found, which proves nothing" in title.replace("\n", " ")
    assert found.method in title.replace("\n", " ")
    linear = LogisticRegression().fit(X, y)
    title = DecisionUncertaintyDisplay.from_estimator(linear, X, y, Box(0.5), grid_resolution=20).ax_.get_title()
    assert "no rim: it does not" in title.replace("\n", " ")
    assert worst_case(linear, X, y, Box(0.5)).method in title.replace("\n", " ")
    for model, said in ((linear, "(exact: linear"), (forest, "(an estimate: 1000 draws)")):
        noisy = DecisionUncertaintyDisplay.from_estimator(model, X, y, GaussianNoise(0.3), grid_resolution=20)
        assert said in noisy.ax_.get_title().replace("\n", " ")


def test_certified_accuracies_say_by_what_of_what_and_how_surely():
    X, y = data()
    models = {"line": LogisticRegression().fit(X, y), "tree": DecisionTreeClassifier(max_depth=2).fit(X, y)}
    display = CertifiedAccuracyDisplay.from_estimators(
        models, X, y, method="smoothing", sigma=0.5, n_draws=50, alpha=0.01, random_state=0
    )
    legend = display.ax_.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(models)
    shown = legend.get_title().get_text().replace("\n", " ")
    assert shown.startswith("the smoothed classifier")
    assert "sigma=0.5 and 50 draws, each row with confidence 0.99" in shown
    several = CertifiedAccuracyDisplay(
        display.radii, display.accuracy, models=models, norm=2, methods=["one way", "another"], unit="apples"
    ).plot()
    assert [text.get_text() for text in several.ax_.get_legend().get_texts()] == ["line: one way", "tree: another"]
    assert display.ax_.get_ylabel() == "certified accuracy, a lower bound (%)"
    plain = CertifiedAccuracyDisplay.from_estimator(models["line"], X, y)
    assert plain.ax_.get_legend().get_title().get_text().replace("\n", " ") == plain.methods[0]


def test_frames_give_their_names_to_axes():
    X, y = data()
    for frame in (pd.DataFrame(X, columns=["mass", "age"]), pl.DataFrame(X, schema=["mass", "age"])):
        model = LogisticRegression().fit(frame, y)
        display = DecisionUncertaintyDisplay.from_estimator(model, frame, y, Ball(0.1), grid_resolution=20)
        assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("mass", "age")
        bars = FeatureFragilityDisplay.from_estimator(model, X_std=[1.0, 1.0])
        assert set(bars.feature_names) == {"mass", "age"}
        sizes = frame.head(3) * 0 + 1
        named = FeatureFragilityDisplay.from_estimator(LogisticRegression().fit(X, y), X_std=sizes)
        assert named.feature_names == ("mass", "age")


def test_fragility_is_the_share_of_the_boxs_reach():
    X, y = data(60, 4)
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(X * [1, 10, 100, 1], y)
    S = np.random.default_rng(0).uniform(size=X.shape)
    display = FeatureFragilityDisplay.from_estimator(scaled, X_std=S, feature_names=list("abcd"))
    w = scaled[-1].coef_[0] / scaled[0].scale_
    expected = np.abs(w) * S.mean(axis=0)
    assert_allclose(display.reach[0], expected)
    assert_allclose(display.shares[0], expected / expected.sum())
    assert display.reach.sum() == pytest.approx(Box(half_widths=S.mean(axis=0)).at(X, {}).support(w))
    widths = [bar.get_width() for bar in display.bars_[0]]
    assert_allclose(widths, np.sort(display.shares[0])[::-1])
    shown = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert shown == list(np.array(list("abcd"))[np.argsort(-expected)])
    assert len(FeatureFragilityDisplay.from_estimator(scaled, X_std=S, n_shown=2).bars_[0]) == 2


def test_fragility_of_several_classes_is_the_mean_over_pairs():
    X, y = data(60, 2, 3)
    model = LogisticRegression().fit(X, y)
    a, b, c = model.coef_
    expected = (np.abs(a - b) + np.abs(a - c) + np.abs(b - c)) / 3
    assert_allclose(FeatureFragilityDisplay.from_estimator(model, X_std=[1.0, 1.0]).reach[0], expected)
    collapsed = LogisticRegression().fit(X, y)
    collapsed.coef_ = np.zeros_like(collapsed.coef_)
    assert_array_equal(FeatureFragilityDisplay.from_estimator(collapsed, X_std=[1.0, 1.0]).shares, 0)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_paths_show_weights_and_accuracies(classes):
    X, y = data(60, 9, classes)
    labels = np.array(["a", "b", "c"])[y]
    path = radius_path(X, labels, radii=[0.05, 0.2, 0.5], uncertainty=Ball(1.0))
    display = NoisePathDisplay.from_path(path, X, labels)
    shown = path.coefs[:, 0] if classes == 2 else np.sqrt(np.mean(path.coefs**2, axis=1))
    assert_allclose(display.weights, shown)
    assert len(display.lines_) == 9
    assert len(display.ax_.get_legend().get_texts()) == 7
    assert display.ax_.get_xlabel() == "radius at training"
    right = []
    for radius in path.radii:
        fitted = RobustLinearClassifier(Ball(radius)).fit(X, labels)
        right.append(fitted.score(X, labels))
    assert_allclose(display.accuracy, right)
    assert NoisePathDisplay.from_path(path, X, labels, kind="accuracy").ax_.get_ylabel() == "accuracy (%)"


def test_a_search_shows_its_scores_errors_and_choice():
    X, y = data(60)
    search = RobustLinearClassifierCV([0.1, 1.0], cv=3, scoring="accuracy").fit(X, y)
    display = NoisePathDisplay.from_estimator(search, size_name="radius in metres")
    results = search.cv_results_
    assert_allclose(display.accuracy, results["mean_test_score"])
    assert_allclose(display.error, results["std_test_score"] * np.sqrt(3 / 2) / np.sqrt(3))
    assert display.chosen == search.radius_
    assert display.ax_.get_xlabel() == "radius in metres at training"
    assert display.ax_.get_ylabel() == "cross-validated score, accuracy (%)"
    with pytest.raises(ValueError, match="Plot a path"):
        display.plot(kind="weights")


@pytest.mark.parametrize(
    "make",
    [
        lambda: RobustnessCurveDisplay.from_estimator(None, None, None, None, None),
        lambda: RobustnessCurveDisplay.from_estimators(None, None, None, None, None),
        lambda: CertifiedAccuracyDisplay.from_estimator(None, None, None),
        lambda: CertifiedAccuracyDisplay.from_estimators(None, None, None),
        lambda: DecisionUncertaintyDisplay.from_estimator(None, None, None, None),
        lambda: FeatureFragilityDisplay.from_estimator(None, X_std=None),
        lambda: FeatureFragilityDisplay.from_estimators(None, X_std=None),
        lambda: NoisePathDisplay.from_path(None),
        lambda: NoisePathDisplay.from_estimator(None),
    ],
)
def test_without_matplotlib_no_work_is_done(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="matplotlib"):
        make()


def test_labels_and_names_that_do_not_fit_are_refused():
    X, y = data(60, 3)
    model = LogisticRegression().fit(X, y)
    for labels in (y[:1], y[:-1], y + 1, np.where(y == 0, "a", "b")):
        with pytest.raises(
            ValueError, match=r"y must hold one of the classes \[0, 1\] of 'mine' for each of the 60 rows"
        ):
            CertifiedAccuracyDisplay.from_estimator(model, X, labels, name="mine")
    for names in (["a", "b"], list("abcd")):
        with pytest.raises(ValueError, match=f"{len(names)} names for 3 features"):
            FeatureFragilityDisplay.from_estimator(model, X_std=[1.0, 1.0, 1.0], feature_names=names)
    assert plt.get_fignums() == []


def test_pictures_that_cannot_be_made_say_so():
    X, y = data(60, 3)
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features; a picture has two"):
        DecisionUncertaintyDisplay.from_estimator(model, X, y, Ball(0.1))
    with pytest.raises(ValueError, match=r"X_std has shape \(2,\); the model has 3 features"):
        FeatureFragilityDisplay.from_estimator(model, X_std=[1.0, 2.0])
    with pytest.raises(TypeError, match="for linear models only"):
        FeatureFragilityDisplay.from_estimator(SVC().fit(X, y), X_std=[1.0, 1.0, 1.0])
    for rows_for_errors in (
        lambda: FeatureFragilityDisplay.from_estimator(model, X),
        lambda: FeatureFragilityDisplay.from_estimators([model], X),
    ):
        with pytest.raises(TypeError, match=r"from_estimators?: too many positional.*\*, X_std"):
            rows_for_errors()
    with pytest.raises(ValueError, match=">= 0"):
        FeatureFragilityDisplay.from_estimator(model, X_std=[1.0, 1.0, -1.0])
    with pytest.raises(ValueError, match="radii must be >= 0"):
        CertifiedAccuracyDisplay.from_estimator(model, X, y, radii=[-1.0, 1.0])
    path = noise_path(X, y, noises=[0.1])
    with pytest.raises(ValueError, match="kind='curves'"):
        NoisePathDisplay.from_path(path, kind="curves")
    with pytest.raises(ValueError, match="Give X and y"):
        NoisePathDisplay.from_path(path, kind="accuracy")
    assert plt.get_fignums() == []
