"""When kernels are used; a damaged cache of them costs speed and one warning, not the fit."""

import logging
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import holdfast
from holdfast import GaussianRobustClassifier
from holdfast._core import compiled
from holdfast._data import rows_of
from holdfast.losses import ExpectedLogistic, GaussianHinge, TwoPointHinge

pytest.importorskip("numba")


def has_cached(monkeypatch, *groups):
    """Let these groups of kernels be on disk, and no others."""
    monkeypatch.setattr(compiled, "are_cached", lambda group: group in groups)


def kernels_of_a_pass(loss, X, monkeypatch):
    """Return the names of the kernels that a pass over these rows asks for."""
    asked, kernel = [], compiled.kernel
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "kernel", lambda name: asked.append(name) or kernel(name))
        ones = np.ones(len(X))
        rows_of(X).margin_pass(loss, ones, ones, np.ones(X.shape[1]), 0.0, np.array(0.5), 1.0)
    return asked


@pytest.mark.parametrize("cached", [True, False])
def test_kernels_that_are_not_on_disk_are_compiled_for_very_long_work_only(cached, monkeypatch):
    has_cached(monkeypatch, *(["PASSES", "STEPS"] if cached else []))
    for repays, size, times in (
        (compiled.repays, compiled.WORTHWHILE, compiled.COMPILING),
        (compiled.steps_repay, compiled.STEPS_WORTHWHILE, compiled.COMPILING_STEPS),
    ):
        assert not repays(size - 1)
        assert repays(size) is repays(times * size - 1) is cached
        assert repays(times * size)


def test_each_group_of_kernels_is_asked_for_itself(monkeypatch):
    has_cached(monkeypatch, "STEPS")
    assert not compiled.repays(int(compiled.WORTHWHILE))
    assert compiled.steps_repay(int(compiled.STEPS_WORTHWHILE))


def test_nothing_repays_without_numba(monkeypatch):
    monkeypatch.setattr(compiled, "is_installed", lambda: False)
    assert not compiled.repays(10**12)
    assert not compiled.steps_repay(10**12)


def test_small_work_does_not_even_ask_for_the_cache(monkeypatch):
    def fail(group):
        raise AssertionError

    monkeypatch.setattr(compiled, "are_cached", fail)
    assert not compiled.repays(int(compiled.WORTHWHILE) - 1)
    assert not compiled.steps_repay(int(compiled.STEPS_WORTHWHILE) - 1)


def test_a_long_fit_that_compiles_changes_nothing_for_a_shorter_one_after_it(monkeypatch, rng):
    has_cached(monkeypatch)
    monkeypatch.setattr(compiled, "WORTHWHILE", 100)
    monkeypatch.setattr(compiled, "COMPILING", 3)
    long, short = rng.normal(size=(100, 3)), rng.normal(size=(99, 3))
    assert kernels_of_a_pass(TwoPointHinge(), short, monkeypatch) == []
    assert set(kernels_of_a_pass(TwoPointHinge(), long, monkeypatch)) == {"margin_sweep", "two_point_hinge"}
    assert kernels_of_a_pass(TwoPointHinge(), short, monkeypatch) == []


def test_a_loss_that_no_pass_is_compiled_for_loads_nothing(monkeypatch, rng):
    def fail(group):
        raise AssertionError

    monkeypatch.setattr(compiled, "are_cached", fail)
    monkeypatch.setattr(compiled, "WORTHWHILE", 100)
    assert kernels_of_a_pass(ExpectedLogistic(), rng.normal(size=(50, 3)), monkeypatch) == []
    with pytest.raises(AssertionError):
        kernels_of_a_pass(GaussianHinge(), rng.normal(size=(50, 3)), monkeypatch)


def test_fits_with_and_without_kernels_agree(monkeypatch, two_classes):
    X, y = two_classes(300, 4)
    monkeypatch.setattr(compiled, "WORTHWHILE", 0)
    found = []
    for times in (0, np.inf):  # compiled, and in NumPy
        has_cached(monkeypatch)
        monkeypatch.setattr(compiled, "COMPILING", times)
        found.append(GaussianRobustClassifier(0.3, loss="hinge").fit(X, y))
    assert found[0].objective_ == pytest.approx(found[1].objective_, rel=1e-6)


FRESH = """
    import holdfast
    from holdfast._core import compiled, kernels

    kernels.PASSES, kernels.STEPS = ("quadratic_hinge",), ("two_point_hinge",)
    found = [compiled.are_cached("PASSES")]
    holdfast.compile(verbose=0)
    found += [compiled.are_cached("PASSES"), compiled.are_cached("STEPS")]
    print(*found)
"""


def test_a_process_that_has_compiled_nothing_does_not_load_numba(monkeypatch, tmp_path):
    def fail(question):
        raise AssertionError

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiled, "HERE", tmp_path)
    monkeypatch.setattr(compiled, "_asked", fail)
    compiled.are_cached.cache_clear()
    assert not compiled.are_cached("PASSES")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "kernels.quadratic_hinge-163.py311.nbi").touch()
    compiled.are_cached.cache_clear()
    with pytest.raises(AssertionError):
        compiled.are_cached("PASSES")
    compiled.are_cached.cache_clear()


def test_compile_leaves_the_kernels_on_disk(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(FRESH)]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.stdout.strip() == "False True True", run.stderr
    assert {path.name.split("-")[0] for path in tmp_path.rglob("*.nbc")} == {
        "kernels.quadratic_hinge",
        "kernels.two_point_hinge",
    }


def test_compile_says_what_it_does(monkeypatch, caplog):
    from holdfast._core import kernels

    monkeypatch.setattr(kernels, "PASSES", ("quadratic_hinge",))
    monkeypatch.setattr(kernels, "STEPS", ("quadratic_hinge", "two_point_hinge"))
    compiled.are_cached.cache_clear()
    with caplog.at_level(logging.INFO, logger="holdfast"):
        holdfast.compile()
    compiled.are_cached.cache_clear()
    assert [record.message for record in caplog.records] == [
        "compiling quadratic_hinge, 1 of 2",
        "compiling two_point_hinge, 2 of 2",
        "all kernels are compiled and on disk",
    ]


def test_compile_without_numba_does_nothing_and_says_how_to_get_it(monkeypatch, caplog):
    monkeypatch.setattr(compiled, "is_installed", lambda: False)
    with caplog.at_level(logging.INFO, logger="holdfast"):
        holdfast.compile()
    assert [record.message for record in caplog.records] == [
        "numba is not installed, so there is nothing to compile: pip install holdfast[fast]"
    ]


SCRIPT = """
    import warnings
    import numpy as np
    from pickle import UnpicklingError
    from numba.core import caching
    from holdfast import FeatureDeletionPerceptron, GaussianRobustClassifier
    from holdfast.solvers import SGD
    from holdfast._core import compiled

    damaged = {damaged!r}
    load = caching.IndexDataCacheFile.load

    def fail(self, key):
        if damaged in self._index_name:
            raise UnpicklingError("invalid load key")
        return load(self, key)

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] > 0.2 * rng.normal(size=200)
    models = [
        GaussianRobustClassifier(0.3),
        GaussianRobustClassifier(0.3, loss="hinge", solver=SGD(epochs=2), tol=1.0, random_state=0),
        FeatureDeletionPerceptron(0.5, random_state=0),
    ]
    plain = [np.array(model.fit(X, y).coef_) for model in models]
    caching.IndexDataCacheFile.load = fail
    compiled.WORTHWHILE = compiled.STEPS_WORTHWHILE = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for model, coef in zip(models, plain):
            np.testing.assert_allclose(model.fit(X, y).coef_, coef, rtol=1e-4)
            model.fit(X, y)
    [warning] = [w for w in caught if issubclass(w.category, RuntimeWarning)]
    assert "numba could not load the compiled kernels (UnpicklingError" in str(warning.message)
    assert "delete the files" in str(warning.message) and warning.filename == "<string>"
"""


@pytest.mark.parametrize("damaged", ["kernels", pytest.param("_steps", marks=pytest.mark.slow)])
def test_a_damaged_cache_is_warned_of_once_and_fits_go_on(damaged):
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.format(damaged=damaged))], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
