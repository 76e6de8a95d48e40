"""The way back from the dual weights of a fit to its coefficients."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from holdfast import GaussianNoise, GaussianRobustClassifier
from holdfast.exceptions import CollapseWarning
from holdfast.experiments import recover_from_dual


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sigma", [0.2, 0.7, 2.0])
def test_model_is_recovered_from_its_dual_weights(fit_intercept, sigma, two_classes, rng):
    for n, d, separation in ((60, 4, 0.8), (30, 2, 0.3), (50, 8, 1.5)):
        X, y = two_classes(n, d, separation=separation, positives=n // 2 - 1)
        c = rng.uniform(0.5, 2, n)
        c[0] = 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            model = GaussianRobustClassifier(sigma, loss="hinge", fit_intercept=fit_intercept)
            model.fit(X, y, sample_weight=c)
        if model.collapsed_:
            continue
        coef, intercept = recover_from_dual(
            model.proof_weights_, X, y, sigma, fit_intercept=fit_intercept, sample_weight=c
        )
        assert_allclose(coef, model.coef_, atol=1e-6 * np.linalg.norm(model.coef_))
        assert_allclose(intercept, model.intercept_, atol=1e-6)
        assert coef.shape == (1, d)
        assert intercept.shape == (1,)


def test_recovery_takes_names_lists_sparse_rows_and_class_weights(two_classes):
    X, signs = two_classes(60, 4, separation=0.8, positives=20)
    y = np.where(signs > 0, "yes", "no")
    model = GaussianRobustClassifier(0.5, loss="hinge", class_weight="balanced").fit(X, y)
    c = np.where(signs > 0, 60 / 40, 60 / 80)
    for rows in (X, X.tolist(), sparse.csr_array(X)):
        coef, intercept = recover_from_dual(model.proof_weights_[0], rows, y.tolist(), 0.5, sample_weight=c)
        assert_allclose(coef, model.coef_, atol=1e-6)
        assert_allclose(intercept, model.intercept_, atol=1e-6)


def test_recovery_says_what_it_cannot_use(two_classes):
    X, y = two_classes(30, 3, separation=0.8)
    model = GaussianRobustClassifier(0.5, loss="hinge").fit(X, y)
    D = model.proof_weights_
    for noise in (0.0, -1.0, np.nan, "much", GaussianNoise(0.5), [0.5]):
        with pytest.raises(ValueError, match=r"recover_from_dual\(noise="):
            recover_from_dual(D, X, y, noise)
    with pytest.raises(ValueError, match="3 classes"):
        recover_from_dual(D, X, np.arange(30) % 3, 0.5)
    with pytest.raises(ValueError, match="one class only"):
        recover_from_dual(D, X, np.ones(30), 0.5)
    for wrong in ((D[:, :-1], X, y), (D, X[:-1], y), (D.T, X, y), (np.tile(D, (2, 1)), X, y)):
        with pytest.raises(ValueError, match="Give the rows that were fitted"):
            recover_from_dual(*wrong, 0.5)
    with pytest.raises(ValueError, match=r"sample_weight.*expected \(30,\)"):
        recover_from_dual(D, X, y, 0.5, sample_weight=np.ones(29))
    for wrong in (-D, 100 * D):
        with pytest.raises(ValueError, match="class weights too"):
            recover_from_dual(wrong, X, y, 0.5)
    with pytest.raises(ValueError, match=r"sample_weight.*non-zero"):
        recover_from_dual(D, X, y, 0.5, sample_weight=np.zeros(30))
    few = np.append(np.zeros(15), np.ones(15))
    with pytest.raises(ValueError, match="class weights too"):
        recover_from_dual(D, X, y, 0.5, sample_weight=few)
    with pytest.raises(ValueError, match="collapsed"):
        recover_from_dual(0 * D, X, y, 0.5)
    with pytest.raises(ValueError, match="Fit the model instead"):
        recover_from_dual(np.where(y > 0, 1.0, -1e-9), X, y, 0.5)
