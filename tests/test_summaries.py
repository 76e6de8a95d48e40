"""Records that functions return: a few readable lines when printed, a table of the same in notebooks."""

import importlib
from dataclasses import is_dataclass
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from holdfast import (
    Box,
    ConditionalImputer,
    CorruptedFeatures,
    FeatureDeletion,
    FeatureDeletionClassifier,
    FeatureDeletionPerceptron,
    GaussianNoise,
    LaplaceBoostClassifier,
    RobustLinearClassifier,
    SafeClassifier,
)
from holdfast._core.summary import Summary, counted, digits, percent, share, some, spread
from holdfast.datasets import intervals_from_replicates, load_breast_cancer_errors
from holdfast.estimators import generalization_bound, noise_path, pac_bayes_bound, pruning_path, radius_path
from holdfast.evaluate import (
    RobustnessCurve,
    certified_deletions,
    certified_interval,
    certified_radius,
    compare,
    flip_probability,
    missing_report,
    noise_budget,
    robust_accuracy,
    robustness_curve,
    safe_bits,
    smoothed,
    what_is_to_gain,
    worst_case,
)
from holdfast.pipeline import noise_from_intervals, noise_from_quantization, noise_from_replicates

rng = np.random.default_rng(0)
y = np.arange(40) % 2
X = rng.normal(size=(40, 3)) + np.outer(2 * y - 1, [1.0, 0.5, 0.0])
S = np.full(X.shape, 0.3)
LINE, TREE = LogisticRegression().fit(X, y), DecisionTreeClassifier(max_depth=2).fit(X, y)
PAIR = {"a <line> & more": LINE, "tree": TREE}


def reported():
    holes = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    return FeatureDeletionClassifier(1, missing="delete").fit(X, y).missing_report(holes)


def bounded():
    model = FeatureDeletionClassifier(1.0, fit_intercept=False).fit(X / 10, y)
    return generalization_bound(model, X / 10, y, budget=1.0, margin=0.1, bound=1.0)


FILLED = make_pipeline(ConditionalImputer(), LogisticRegression()).fit(X, y)
RECORDS = {
    "CertifiedRadius": lambda: certified_radius(LINE, X),
    "CertifiedInterval": lambda: certified_interval(LINE, X, X_lower=X - S, X_upper=X + S),
    "CertifiedDeletions": lambda: certified_deletions(LINE, X),
    "FlipProbability": lambda: flip_probability(TREE, X, X_std=S, n_draws=20),
    "MissingEntries": lambda: missing_report(FILLED, np.where(X > 1.0, np.nan, X)),
    "SafeBits": lambda: safe_bits(LINE, X),
    "SmoothedRadius": lambda: smoothed(TREE, X, 0.3, n_draws=20, n_choose=5, random_state=0),
    "WorstCase": lambda: worst_case(LINE, X, y, Box(0.1)),
    "RobustAccuracy": lambda: robust_accuracy(LINE, X, y, Box(0.1)),
    "RobustnessCurve": lambda: robustness_curve(PAIR, X, y, Box(), np.arange(20) / 10, n_repeats=2, X_std=S),
    "Comparison": lambda: compare(PAIR, X, y, GaussianNoise(0.5), 1.0),
    "NoiseBudget": lambda: noise_budget(LINE, X, y, 0.6, X_std=S),
    "Gain": lambda: what_is_to_gain(LINE, X, X_std=S),
    "NoisePath": lambda: noise_path(X, y, 10),
    "RadiusPath": lambda: radius_path(X, y, 3, uncertainty=Box()),
    "PruningPath": lambda: pruning_path(RobustLinearClassifier(Box(0.1)), X, y, deltas=[0.1, 0.05]),
    "MissingReport": reported,
    "Distrust": lambda: SafeClassifier(0.1, 0.1).fit(X, y).distrust(),
    "GeneralizationBound": bounded,
    "PacBayesBound": lambda: pac_bayes_bound(LaplaceBoostClassifier(feature_range=(-6, 6)).fit(X, y), X, y),
    "OnlineBound": lambda: FeatureDeletionPerceptron(1, radius=9.0).fit(X, y).online_bound(),
}
every_record = pytest.mark.parametrize("name", RECORDS)


class Table(HTMLParser):
    """The cells of a table, and whether all tags are closed in their order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.seen = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


def test_all_records_are_tried_and_print_themselves():
    modules = [
        importlib.import_module(f"holdfast.{package}")
        for package in ("estimators", "evaluate", "experiments", "pipeline")
    ]
    public = {name: getattr(module, name) for module in modules for name in module.__all__}
    records = {name: kind for name, kind in public.items() if isinstance(kind, type) and is_dataclass(kind)}
    assert set(records) == set(RECORDS)
    assert all(issubclass(kind, Summary) for kind in records.values())


@every_record
def test_a_record_prints_a_few_short_lines_and_no_arrays(name):
    found = RECORDS[name]()
    assert type(found).__name__ == name
    text = str(found)
    if name != "Gain":  # a verdict in a few sentences
        assert 3 <= len(text.splitlines()) <= 14
        assert max(map(len, text.splitlines())) < 160
    assert not any(word in text for word in ("array(", "nan", "{", "np."))


@every_record
def test_a_notebook_shows_the_same_in_a_table(name):
    found = RECORDS[name]()
    table = Table(found._repr_html_())
    assert not table.open
    assert {"table", "tr", "td"} <= set(table.seen) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    said = " ".join(str(found).split())
    for cell in table.cells:
        assert " ".join(cell.split()) in said or name == "Gain"


def test_names_of_models_are_no_markup():
    shown = RECORDS["RobustnessCurve"]()._repr_html_()
    assert "a &lt;line&gt; &amp; more" in shown
    assert "<line>" not in shown


def test_summaries_say_what_is_true():
    rows = np.vstack([X, [[0.0, 0.0, -LINE.intercept_[0] / LINE.coef_[0, 2]]]])  # the last one is on the boundary
    found = certified_radius(LINE, rows, norm="inf")
    assert np.sum(found.radius > 0) == 40
    assert "(40 of 41)" in str(found)
    assert f"from {found.radius.min():.4g} to {found.radius.max():.4g}" in str(found)
    assert found.assumption in " ".join(str(found).split())
    curve = RECORDS["RobustnessCurve"]()
    assert f"{100 * curve.mean[0, 0]:.1f} %" in str(curve).splitlines()[2]
    assert "multiple of the stated half-widths" in str(curve)
    assert "a <line> & more, certified" in str(curve)
    assert "tree, certified" not in str(curve)
    assert len(str(curve).splitlines()[1].split()) == 5 + 8  # eight of the twenty levels, the last among them
    assert str(curve).splitlines()[1].endswith(" 1.9")
    accuracy = robust_accuracy(TREE, X, y, Box(0.1), n_starts=1, max_iter=2)
    assert "an upper bound" in str(accuracy)
    assert "unknown" in str(accuracy)


def test_records_without_rows_are_printed_too():
    empty = certified_radius(LINE, X[:1])
    none = type(empty)(predicted=empty.predicted[:0], radius=empty.radius[:0], method="m", assumption="a")
    assert "no rows" in str(none)


def test_a_curve_of_one_draw_has_no_standard_errors():
    curve = RobustnessCurve(
        models=("m",),
        levels=np.array([1.0]),
        accuracy=np.array([[[0.5]]]),
        certified=np.array([[np.nan]]),
        uncertainty="Box()",
        adversary="exact",
        unit="multiple",
        n_samples=4,
    )
    assert (
        str(curve)
        == "Accuracy on 4 rows\n  multiple       1\n  m         50.0 %\nBox(), adversary 'exact', 1 draw at each level."
    )


def test_one_row_is_not_rows():
    assert str(certified_radius(LINE, X[:1])).startswith("CertifiedRadius of 1 row\n")
    assert str(worst_case(LINE, X[:1], y[:1], Box(0.1))).startswith("WorstCase of 1 row\n")
    assert str(robustness_curve(LINE, X[:1], y[:1], Box(0.1), [1.0])).startswith("Accuracy on 1 row\n")
    assert [counted(n, "fit") for n in (0, 1, 2)] == ["0 fits", "1 fit", "2 fits"]


@pytest.mark.parametrize(
    ("uncertainty", "unit"),
    [
        (FeatureDeletion(1), "deleted features in each row"),
        (FeatureDeletion(1, [1, 2, 0.5]), "value of the deleted features in each row"),
        (FeatureDeletion(2), "multiple of the stated budget"),
        (FeatureDeletion(0), "multiple of the stated budget"),
        (CorruptedFeatures(1), "corrupted features in each row"),
        (CorruptedFeatures(2), "multiple of the stated number of corrupted features"),
    ],
    ids=repr,
)
def test_curves_say_what_a_level_counts(uncertainty, unit):
    curve = robustness_curve(LINE, X, y, uncertainty, [1.0], n_repeats=1)
    assert curve.unit == unit
    assert unit in str(curve)


HOLES = np.where(X > 1.5, np.nan, X)
TUPLES = {
    "ErrorBars": load_breast_cancer_errors,
    "Intervals": lambda: intervals_from_replicates(X, np.arange(40) // 2),
    "IntervalNoise": lambda: noise_from_intervals(HOLES - S, HOLES + S, values_missing="keep"),
    "ReplicateNoise": lambda: noise_from_replicates(X, np.arange(40) // 4),
    "RoundingErrors": lambda: noise_from_quantization(0.5),
}


@pytest.mark.parametrize("name", TUPLES)
def test_tables_of_errors_print_a_line_for_each_field_and_no_arrays(name):
    found = TUPLES[name]()
    lines = str(found).splitlines()
    assert lines[0] == type(found).__name__ == name
    assert [line.split()[0] for line in lines[1:]] == list(found._fields)
    assert max(map(len, lines)) < 100
    assert not any(word in str(found) for word in ("array(", "nan", "np.", "[", "unknown"))
    assert all(field in Table(found._repr_html_()).cells for field in found._fields)
    assert tuple(found) == tuple(getattr(found, field) for field in found._fields)


def test_tables_of_errors_say_what_is_true():
    assert str(noise_from_quantization(0.5)) == "RoundingErrors\n  std          0.1443\n  half_widths  0.25"
    data = load_breast_cancer_errors()
    shown = dict(line.split(maxsplit=1) for line in str(data).splitlines()[1:])
    assert shown["X"].startswith("569 x 10: median ")
    assert f"from {data.X.min():.4g} to {data.X.max():.4g}" in shown["X"]
    assert [shown["y"], shown["feature_names"]] == ["569 values", "10 values"]
    assert "  y        none" in str(intervals_from_replicates(X, np.arange(40) // 2))


def test_numbers_have_sensible_digits():
    assert [digits(x) for x in (1 / 3, 12345.678, 0, np.inf, np.nan, 1e-9)] == [
        "0.3333",
        "1.235e+04",
        "0",
        "inf",
        "unknown",
        "1e-09",
    ]
    assert percent(0.12345) == "12.3 %"
    assert share(np.array([True, False, False])) == "33.3 % (1 of 3)"
    assert spread([3.0, np.inf, 1.0]) == "median 3, from 1 to inf"
    assert some(3) == [0, 1, 2]
    assert some(100)[0] == 0
    assert some(100)[-1] == 99
    assert len(some(100)) == 8
