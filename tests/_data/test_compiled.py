"""A damaged cache of compiled kernels costs speed and one warning, not the fit."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("numba")

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
