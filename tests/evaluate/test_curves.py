import json
import subprocess
import sys
import textwrap
import threading
import time
from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import binomtest, ttest_rel
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from holdfast import Ball, Box, CorruptedFeatures, FeatureDeletion, GaussianNoise, LabelFlips
from holdfast.evaluate import (
    Quantize,
    compare,
    robust_accuracy,
    robustness_curve,
)
from holdfast.evaluate.comparisons import holm


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=(n, 3)) + np.outer(2 * y - 1, [1.0, 0.5, 0.0]), y


@pytest.fixture(scope="module")
def models():
    X, y = data(seed=1)
    return {"linear": LogisticRegression().fit(X, y), "tree": DecisionTreeClassifier(max_depth=3).fit(X, y)}


def test_means_and_errors_are_those_of_a_loop_by_hand(models):
    X, y = data()
    noise, levels = GaussianNoise(0.7), [0.0, 0.5, 2.0]
    curve = robustness_curve(models, X, y, noise, levels, n_repeats=4, random_state=3)
    for i, model in enumerate(models.values()):
        for j, level in enumerate(levels):
            rngs = [np.random.default_rng([3, k, int(np.float64(level).view(np.uint64))]) for k in range(4)]
            by_hand = [np.mean(model.predict(X + level * 0.7 * rng.standard_normal(X.shape)) == y) for rng in rngs]
            assert_allclose(curve.accuracy[i, j], by_hand)
            assert curve.mean[i, j] == pytest.approx(np.mean(by_hand))
            assert curve.standard_error[i, j] == pytest.approx(np.std(by_hand, ddof=1) / 2)
    assert curve.models == ("linear", "tree")
    assert curve.unit == "multiple of the stated noise"
    assert (curve.uncertainty, curve.adversary) == ("GaussianNoise(std=0.7)", "random")
    assert np.isnan(curve.certified).all()
    assert_array_equal(curve.mean[:, 0], [model.score(X, y) for model in models.values()])


def test_draws_do_not_depend_on_threads_other_levels_models_or_repeats(models):
    X, y = data()
    one = robustness_curve(models, X, y, GaussianNoise(1.0), [0.5, 1.0], n_repeats=3)
    two = robustness_curve(models, X, y, GaussianNoise(1.0), [0.5, 1.0], n_repeats=3, n_jobs=2)
    assert_array_equal(one.accuracy, two.accuracy)
    part = robustness_curve(models["tree"], X, y, GaussianNoise(1.0), [1.0], n_repeats=2)
    assert_array_equal(part.accuracy[0, 0], one.accuracy[1, 1, :2])
    other = robustness_curve(models, X, y, GaussianNoise(1.0), [0.5, 1.0], n_repeats=3, random_state=1)
    assert np.any(other.accuracy != one.accuracy)


@pytest.mark.parametrize(
    ("uncertainty", "metadata"),
    [
        (Box(0.5), {}),
        (Box(), {"X_std": np.full((60, 3), 0.4)}),
        (Ball(0.4), {}),
        (FeatureDeletion(1), {}),
        (Quantize(0.8), {}),
    ],
    ids=repr,
)
def test_what_is_certified_is_never_above_what_is_seen(models, uncertainty, metadata):
    X, y = data()
    models = models | {"rbf": SVC(gamma=0.3).fit(*data(seed=1))}
    curve = robustness_curve(models, X, y, uncertainty, [0, 1, 2], n_repeats=20, **metadata)
    known = np.isfinite(curve.certified)
    assert np.all(curve.certified[known] <= curve.accuracy.min(axis=2)[known])
    assert known[0].all()
    assert known[2].all()
    assert not known[1].any()
    assert curve.certified[0, 0] == curve.accuracy[0, 0, 0]
    assert np.all(np.diff(curve.certified[0]) <= 0)


def test_what_is_certified_is_the_robust_accuracy_of_all_that_can_happen(models):
    X, y = data()
    model = models["linear"]
    curve = robustness_curve(model, X, y, FeatureDeletion(1), [1, 2, 3], adversary="exact")
    for k in (1, 2):
        assert curve.certified[0, k - 1] == robust_accuracy(model, X, y, FeatureDeletion(k)).certified
    assert_array_equal(curve.certified[0, :2], curve.mean[0, :2])
    assert np.isnan(curve.certified[0, 2])  # all features may go
    curve = robustness_curve(model, X, y, Box(half_widths=[0.1, 0.2, 0.0]), [2.0])
    assert curve.certified[0, 0] == robust_accuracy(model, X, y, Box(half_widths=[0.2, 0.4, 0])).certified


def test_what_is_not_random_is_done_once_and_has_no_error(models):
    X, y = data()
    curve = robustness_curve(models, X, y, Quantize(), [0.0, 1.0], n_repeats=9)
    assert curve.accuracy.shape == (2, 2, 1)
    assert np.isnan(curve.standard_error).all()


def test_an_adversary_aims_at_each_model():
    X, y = data()
    # each leans on one feature
    one, other = (LogisticRegression().fit(X * unit, y) for unit in np.eye(3)[:2])
    curve = robustness_curve([one, other], X, y, FeatureDeletion(1), [1], adversary="exact")
    for k, model in enumerate((one, other)):
        alone = robustness_curve(model, X, y, FeatureDeletion(1), [1], adversary="exact")
        assert alone.mean[0, 0] == curve.mean[k, 0] < model.score(X, y) - 0.1
    assert curve.models == ("LogisticRegression 1", "LogisticRegression 2")


def test_frames_and_sparse_rows_give_the_same_curve():
    X, y = data()
    model = LogisticRegression().fit(X, y)
    plain = robustness_curve(model, X, y, GaussianNoise(1.0), [0.0, 1.0], n_repeats=2)
    assert_array_equal(
        robustness_curve(model, sparse.csr_matrix(X), y, GaussianNoise(1.0), [0.0, 1.0], n_repeats=2).accuracy,
        plain.accuracy,
    )
    for frame in (pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))):
        named = {"m": LogisticRegression().fit(frame, y)}
        found = robustness_curve(named, frame, y, GaussianNoise(1.0), [0.0, 1.0], n_repeats=2)
        assert_array_equal(found.accuracy, plain.accuracy)


def test_errors_in_other_columns_than_the_values_are_refused():
    X, y = data()
    frame, errors = pd.DataFrame(X, columns=list("abc")), pd.DataFrame(np.ones_like(X), columns=list("acb"))
    model = LogisticRegression().fit(frame, y)
    with pytest.raises(ValueError, match="X_std has the columns"):
        robustness_curve(model, frame, y, GaussianNoise(), [1.0], X_std=errors)


def test_the_frame_is_tidy(models):
    X, y = data()
    curve = robustness_curve(models, X, y, Box(1.0), [0.0, 1.0], n_repeats=3)
    frame = curve.to_frame()
    assert list(frame.columns) == ["model", "level", "accuracy", "standard_error", "certified"]
    assert frame.shape == (4, 5)
    row = frame[(frame.model == "tree") & (frame.level == 1.0)].iloc[0]
    assert row.accuracy == curve.mean[1, 1]
    assert row.standard_error == curve.standard_error[1, 1]


def test_progress_is_logged(models, caplog):
    X, y = data()
    with caplog.at_level("INFO", logger="holdfast"):
        robustness_curve(models, X, y, GaussianNoise(1.0), [1.0], n_repeats=2, progress=True)
    assert "cell 2 of 2" in caplog.text


class Counting(GaussianNB):
    """A model that counts how often it is asked, and breaks down after a while."""

    asked, limit = 0, np.inf

    def predict(self, X):
        Counting.asked += 1
        if Counting.asked > Counting.limit:
            raise KeyboardInterrupt
        return super().predict(X)


def test_an_interrupted_run_is_taken_up_where_it_was_left(tmp_path):
    X, y = data()
    model, path, options = Counting().fit(X, y), tmp_path / "cells.jsonl", {"n_repeats": 4, "random_state": 0}
    expected = robustness_curve(model, X, y, GaussianNoise(1.0), [0.5, 1.0], **options)
    Counting.asked, Counting.limit = 0, 5
    with pytest.raises(KeyboardInterrupt):
        robustness_curve(model, X, y, GaussianNoise(1.0), [0.5, 1.0], resume=path, **options)
    Counting.asked, Counting.limit = 0, np.inf
    found = robustness_curve(model, X, y, GaussianNoise(1.0), [0.5, 1.0], resume=path, **options)
    assert_array_equal(found.accuracy, expected.accuracy)
    assert Counting.asked == 8 - 5
    again = robustness_curve(model, X, y, GaussianNoise(1.0), [0.5, 1.0, 2.0], resume=path, **options)
    assert Counting.asked == 8 - 5 + 4  # another level costs its own cells only
    assert_array_equal(again.accuracy[:, :2], expected.accuracy)
    assert [file.name for file in tmp_path.iterdir()] == ["cells.jsonl"]
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 1 + 12


@pytest.mark.slow
def test_a_killed_run_leaves_a_whole_file_that_the_next_one_takes_up(tmp_path):
    path = tmp_path / "cells.jsonl"
    script = textwrap.dedent(f"""
        import time
        import numpy as np
        from sklearn.linear_model import LogisticRegression
        from holdfast import GaussianNoise, robustness_curve

        class Slow(LogisticRegression):
            def predict(self, X):
                time.sleep(0.3)
                return super().predict(X)

        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
        robustness_curve({{"m": Slow().fit(X, y)}}, X, y, GaussianNoise(1.0), [1.0, 2.0], n_repeats=200, resume={str(path)!r})
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        deadline = time.monotonic() + 60
        while not path.exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        run.kill()
        run.wait()
    done = len(path.read_text(encoding="utf-8").splitlines()) - 1
    assert 1 <= done < 400
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    models = {"m": LogisticRegression().fit(X, y)}
    resumed = robustness_curve(models, X, y, GaussianNoise(1.0), [1.0, 2.0], n_repeats=200, resume=path)
    assert_array_equal(
        resumed.accuracy, robustness_curve(models, X, y, GaussianNoise(1.0), [1.0, 2.0], n_repeats=200).accuracy
    )


def test_files_of_other_runs_are_refused_and_left_alone(models, tmp_path):
    X, y = data()
    path = tmp_path / "cells.jsonl"

    def run(**change):
        asked = {"X": X, "y": y, "uncertainty": GaussianNoise(1.0), "random_state": 0, "models": models} | change
        return robustness_curve(
            asked.pop("models"),
            asked.pop("X"),
            asked.pop("y"),
            asked.pop("uncertainty"),
            [1.0],
            n_repeats=2,
            resume=path,
            **asked,
        )

    first = run()
    before = path.read_bytes()
    changes = {
        "data": {"X": X + 1e-9},
        "uncertainty": {"uncertainty": GaussianNoise([1.0, 1.0, 1.1])},
        "random_state": {"random_state": 1},
        "metadata": {"X_std": np.ones_like(X)},
    }
    with pytest.raises(ValueError, match="another run: other uncertainty, adversary"):
        run(uncertainty=Box(1.0), adversary="exact")
    for what, change in changes.items():
        with pytest.raises(ValueError, match=f"another run: other {what}"):
            run(**change)
    assert path.read_bytes() == before
    # a model that was fitted again under the same name is tried again
    second = run(models={"linear": LogisticRegression(C=1e-4).fit(X, 1 - y), "tree": models["tree"]})
    assert np.any(second.accuracy[0] != first.accuracy[0])
    assert_array_equal(second.accuracy[1], first.accuracy[1])
    path.write_text("something else\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no record of a run"):
        run()


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: "3\n",
        lambda lines: "[1, 2]\n",
        lambda lines: '"text"\n',
        lambda lines: "[" * 100_000,
        lambda lines: "",
        lambda lines: "\n".join([lines[0], "7"]),
        lambda lines: "\n".join([lines[0], '{"cell": 3, "result": 0.5}']),
        lambda lines: "\n".join([lines[0], '{"cell": ["a"]}']),
        *(
            lambda lines, wrong=wrong: "\n".join([lines[0], json.dumps(json.loads(lines[1]) | {"result": wrong})])
            for wrong in (7.5, -0.1, np.nan, np.inf, "0.5", True, None, [0.5])
        ),
    ],
)
def test_records_of_another_shape_or_with_impossible_accuracies_are_refused(models, tmp_path, damage):
    X, y = data()
    path = tmp_path / "cells.jsonl"
    robustness_curve(models, X, y, GaussianNoise(1.0), [1.0], n_repeats=2, resume=path)
    path.write_text(damage(path.read_text(encoding="utf-8").splitlines()), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"robustness_curve\(resume=.*no record of a run"):
        robustness_curve(models, X, y, GaussianNoise(1.0), [1.0], n_repeats=2, resume=path)
    assert path.read_bytes() == before


def test_a_model_is_known_by_what_it_is_not_by_its_answers(tmp_path):
    X, y = data()
    path = tmp_path / "cells.jsonl"
    one, other = (DecisionTreeClassifier(splitter="random", random_state=seed).fit(X, y) for seed in (0, 1))
    other.set_params(random_state=0)  # parameters and answers on X alike
    assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    asked = {"X": X, "y": y, "uncertainty": GaussianNoise(1.0), "levels": [1.0, 2.0], "n_repeats": 5}
    first, second = (robustness_curve({"m": model}, **asked, resume=path).accuracy for model in (one, other))
    assert_array_equal(second, robustness_curve({"m": other}, **asked).accuracy)
    assert np.any(first != second)
    same = DecisionTreeClassifier(splitter="random", random_state=0).fit(X, y)
    robustness_curve({"m": same}, **asked, resume=path)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1 + 2 * 10


def test_a_model_that_cannot_be_told_from_others_is_refused(tmp_path):
    X, y = data()
    model = LogisticRegression().fit(X, y)
    model.secret = lambda: 3
    with pytest.raises(ValueError, match=r"robustness_curve\(resume=...\).*cannot be pickled"):
        robustness_curve(model, X, y, GaussianNoise(1.0), [1.0], resume=tmp_path / "cells.jsonl")


def test_threads_that_share_a_file_lose_nothing(models, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.evaluate.cells.BETWEEN", 0.0)
    X, y = data()
    path, errors = tmp_path / "cells.jsonl", []

    def run(level):
        try:
            robustness_curve(models, X, y, GaussianNoise(1.0), [level], n_repeats=5, resume=path, n_jobs=2)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(level,)) for level in (0.5, 1.0, 1.5, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1 + len(models) * 5 * 4
    assert [file.name for file in tmp_path.iterdir()] == ["cells.jsonl"]
    with pytest.raises(ValueError, match="another run: other random_state"):
        robustness_curve(models, X, y, GaussianNoise(1.0), [0.5], n_repeats=5, resume=path, random_state=1)


def test_a_file_that_cannot_be_written_is_refused_before_any_work(models, tmp_path):
    X, y = data()

    class Idle(LogisticRegression):
        def decision_function(self, X):
            raise AssertionError("asked")

    for path in (tmp_path / "missing" / "cells.jsonl", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"robustness_curve\(resume=.*name a file in a folder that exists"):
            robustness_curve(Idle().fit(X, y), X, y, GaussianNoise(1.0), [1.0], resume=path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"models": {}}, "give a dict of names and fitted classifiers"),
        ({"models": {"a": 3}}, "give a dict"),
        ({"uncertainty": 0.5}, "give a set, such as"),
        ({"levels": []}, "at least one"),
        ({"levels": [-1.0]}, "from 0 to"),
        ({"levels": 1.0}, r"levels=1.0"),
        ({"n_repeats": 0}, "n_repeats=0"),
        ({"random_state": None}, "random_state=None.*made again"),
        ({"y": [0, 1]}, "for each of the 60 rows"),
        ({"X": np.zeros((60, 2))}, "2 features"),
        ({"models": LogisticRegression()}, "not fitted"),
    ],
)
def test_questions_that_make_no_sense_are_refused_before_any_work(models, change, text, tmp_path):
    X, y = data()
    asked = {"models": models, "X": X, "y": y, "uncertainty": GaussianNoise(1.0), "levels": [1.0]} | change
    with pytest.raises(ValueError, match=text):
        robustness_curve(**asked, resume=tmp_path / "cells.jsonl")
    assert not list(tmp_path.iterdir())


def test_comparing_draws_of_noise_is_a_t_test_over_rows(models):
    X, y = data()
    noise = GaussianNoise(0.7)
    found = compare(models, X, y, noise, 1.0, n_repeats=5, random_state=2)
    rngs = [np.random.default_rng([2, k, int(np.float64(1.0).view(np.uint64))]) for k in range(5)]
    shares = {name: np.zeros(60) for name in models}
    for rng in rngs:
        Z = X + 0.7 * rng.standard_normal(X.shape)
        for name, model in models.items():
            shares[name] += (model.predict(Z) == y) / 5
    expected = ttest_rel(shares["linear"], shares["tree"])
    assert found.pairs == (("linear", "tree"),)
    assert found.p_value[0] == pytest.approx(expected.pvalue)
    assert found.p_holm[0] == found.p_value[0]
    assert found.difference[0] == pytest.approx(np.mean(shares["linear"] - shares["tree"]))
    assert_allclose(found.accuracy, [shares["linear"].mean(), shares["tree"].mean()])
    assert found.standard_error[0] == pytest.approx(np.std(shares["linear"] - shares["tree"], ddof=1) / np.sqrt(60))
    assert "t test over the rows" in str(found)


def test_comparing_one_draw_is_mcnemars_test(models):
    X, y = data()
    found = compare(models, X, y, Quantize(1.5), 1.0)
    Z = Quantize(1.5).apply(X, y, 1.0, np.random.default_rng(0))[0]
    one, other = (model.predict(Z) == y for model in models.values())
    alone = np.sum(one & ~other), np.sum(~one & other)
    assert found.p_value[0] == pytest.approx(binomtest(int(alone[0]), int(sum(alone))).pvalue)
    assert "McNemar" in found.test
    same = compare({"a": models["tree"], "b": models["tree"]}, X, y, LabelFlips(1.0), 0.2, n_repeats=3)
    assert same.p_value[0] == 1
    assert same.difference[0] == 0


@pytest.mark.parametrize(("n", "p"), [(1, 1.0), (2, 0.5), (10, 2.0**-9)])
def test_rows_that_all_differ_alike_are_tested_by_their_signs(n, p):
    X, y = np.full((n, 1), 5.0), np.ones(n, dtype=int)
    Z, labels = np.array([[-1.0], [1.0]]), [0, 1]
    right, wrong = LogisticRegression().fit(Z, labels), LogisticRegression().fit(-Z, labels)
    found = compare({"a": right, "b": wrong, "c": right}, X, y, GaussianNoise(1.0), 0.01, n_repeats=3)
    assert_allclose(found.p_value, [p, 1.0, p])
    assert "sign test" in str(found)


def test_models_that_are_alike_are_rarely_told_apart():
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(200):
        # two coins that are right as often as each other
        d = (rng.uniform(size=(2, 40)) < 0.7).astype(float)
        X = np.column_stack([d[0], d[1]])
        ours = {"a": _Column(0), "b": _Column(1)}
        rejected += compare(ours, X, np.ones(40), CorruptedFeatures(1), 0, n_repeats=2).p_value[0] < 0.05
    assert rejected <= 20  # 10 are expected


class _Column(LogisticRegression):
    """A model whose prediction is one of the features."""

    def __init__(self, column=0):
        super().__init__()
        self.column = column
        self.classes_, self.n_features_in_, self.coef_ = np.array([0.0, 1.0]), 2, np.zeros((1, 2))
        self.intercept_ = np.zeros(1)

    def predict(self, X):
        return X[:, self.column]


def test_holms_correction_by_hand():
    assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.5])), [0.04, 0.09, 0.09, 0.5])
    assert_allclose(holm(np.array([0.6, 0.9])), [1.0, 1.0])


def test_comparisons_are_refused_with_advice(models):
    X, y = data()
    with pytest.raises(ValueError, match="two models at least"):
        compare({"a": models["tree"]}, X, y, GaussianNoise(1.0), 1.0)
    with pytest.raises(ValueError, match=r"compare\(level=-1.0\)"):
        compare(models, X, y, GaussianNoise(1.0), -1.0)


@pytest.mark.parametrize("share", [0.5, 1.0, 2.0])
def test_exact_deletions_of_a_share_aim_at_the_rival_that_gains_the_most(share):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = LogisticRegression().fit(X, y)
    right = model.predict(X) == y
    for count in (1, 2):
        for gone in combinations(range(4), count):
            moved = X.copy()
            moved[:, gone] *= 1 - share
            right &= model.predict(moved) == y
    curve = robustness_curve(model, X, y, FeatureDeletion(2, share=share), [1.0], adversary="exact")
    assert curve.mean[0, 0] == pytest.approx(right.mean())


def test_labels_that_no_model_knows_and_models_that_are_no_classifiers_are_refused():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    for labels in (y.astype(str), y + 7, np.where(y == 0, np.nan, y)):
        with pytest.raises(ValueError, match=r"robustness_curve\(model, X, y\): y must hold one of the classes"):
            robustness_curve(model, X, labels, Box(0.1), [0, 1])
    with pytest.raises(TypeError, match=r"LinearRegression\(\): is no classifier"):
        robustness_curve(LinearRegression().fit(X, y), X, y, Box(0.1), [0, 1])
    with pytest.raises(TypeError, match="compare: no such argument: advesary"):
        compare([model, model], X, y, Box(0.1), 1.0, advesary="exact")
    with pytest.raises(ValueError, match=r"compare\(level=-1\)"):
        compare([model, model], X, y, Box(0.1), -1)
