"""NoiseAwareClassifier with bandwidth and ridge chosen by cross-validation under noise."""

from __future__ import annotations

from copy import copy
from itertools import product
from typing import Any, Self, Unpack

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import log_loss

from holdfast._core.allowed import JOBS, NOTHING, Number, Several
from holdfast._core.loss import Array
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.progress import reporter
from holdfast._core.solver import Report
from holdfast.estimators.folds import CV, chosen, splits_of
from holdfast.estimators.inputs import seed_of
from holdfast.estimators.noise_aware import NoiseAwareClassifier, Rows, without_their_warnings
from holdfast.estimators.paths import warn_of_gaps

NAME = "NoiseAwareClassifierCV"


class NoiseAwareClassifierCV(NoiseAwareClassifier):
    r"""NoiseAwareClassifier with gamma and alpha chosen by the log loss on validation rows as noisy as future ones.

    Validation rows are measured again, :math:`x_i + m\,\delta_i` with draws :math:`\delta_i \sim N(0, C_i)`, and the
    model is given their noise :math:`m^2 C_i`. The settings that are best on clean rows need not be the best on noisy
    rows.

    Parameters
    ----------
    gammas : array-like of float, default=(0.3, 1, 3)
        The bandwidths to try, in multiples of "scale", which is 1 / n_features. Splines have no bandwidth.
    alphas : array-like of float, default=(0.1, 0.3, 1, 3, 10)
        The ridges to try.
    deploy_noise : float, default=None
        m, the noise of rows at prediction as a multiple of the noise given to `fit`. None: the mean score over all
        `levels`.
    cv : int, splitter or iterable, default=3
        As in scikit-learn; a number means that many stratified folds.
    n_jobs : int, default=None
        Folds fitted at the same time, in threads.
    features, levels, n_copies, n_knots, n_components, prior, method, class_weight, tol, max_iter, verbose, random_state
        As in :class:`NoiseAwareClassifier`.

    Attributes
    ----------
    gamma_, alpha_ : float
        The chosen values, gamma in multiples of "scale". Ties go to the largest alpha, then to the smallest gamma.
    best_score_ : float
        Their mean validation score, minus the log loss.
    cv_results_ : dict of ndarrays
        ``param_gamma``, ``param_alpha``, ``split0_test_score`` ..., ``mean_test_score``, ``std_test_score``,
        ``rank_test_score`` and ``max_gap``, the largest certified gap of the folds.
    classes_, features_, model_, gap_, ...
        As in :class:`NoiseAwareClassifier`, for the fit to all rows.

    Examples
    --------
    >>> from holdfast import NoiseAwareClassifierCV
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> data = load_breast_cancer_errors()
    >>> model = NoiseAwareClassifierCV(gammas=[1.0], alphas=[0.1, 1.0], deploy_noise=4, n_components=50)
    >>> model.fit(data.X, data.y, X_std=data.X_std).alpha_
    1.0
    """

    parameter_table = {
        "gammas": Several(Number(strictly=True)),
        "alphas": Several(Number(strictly=True)),
        "deploy_noise": Number() | NOTHING,
        "cv": CV,
        "n_jobs": JOBS,
    }

    def __init__(
        self,
        gammas: Any = (0.3, 1.0, 3.0),
        *,
        alphas: Any = (0.1, 0.3, 1.0, 3.0, 10.0),
        deploy_noise: float | None = None,
        cv: Any = 3,
        n_jobs: int | None = None,
        features: str = "both",
        levels: Any = (0, 1, 2, 4),
        n_copies: int = 2,
        n_knots: int = 12,
        n_components: int = 500,
        prior: str | None = "gaussian",
        method: str = "consistent",
        class_weight: Any = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        verbose: int = 0,
        random_state: Any = 0,
    ):
        super().__init__(
            features,
            levels=levels,
            n_copies=n_copies,
            n_knots=n_knots,
            n_components=n_components,
            prior=prior,
            method=method,
            class_weight=class_weight,
            tol=tol,
            max_iter=max_iter,
            verbose=verbose,
            random_state=random_state,
        )
        del self.gamma, self.alpha
        self.gammas = gammas
        self.alphas = alphas
        self.deploy_noise = deploy_noise
        self.cv = cv
        self.n_jobs = n_jobs

    @takes_metadata
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        **metadata: Unpack[NoiseByRow],
    ) -> Self:
        """Choose gamma and alpha by cross-validation, and fit.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`NoiseAwareClassifier.fit`.
        **metadata
        groups : array-like of shape (n_samples,), default=None
            Handed to the splitter, such as ``GroupKFold``.
        """
        rows = self._checked(X, y, sample_weight, metadata)
        if rows.noise is None and self.deploy_noise:
            raise ValueError(
                f"{NAME}(deploy_noise={self.deploy_noise!r}).fit: it multiplies noise that is not stated. Pass X_std, X_cov or "
                "X_factor."
            )
        report, seed = reporter(self.verbose), seed_of(self.random_state)
        has_waves = self.features != "splines" and self.method == "consistent"
        gammas = np.sort(np.asarray(self.gammas, dtype=np.float64)) if has_waves else np.ones(1)
        alphas = np.sort(np.asarray(self.alphas, dtype=np.float64))[::-1]
        workers = Parallel(n_jobs=self.n_jobs, prefer="threads")
        splits = splits_of(self, rows.X, self.classes_[rows.codes], rows.weights, groups)
        with without_their_warnings():
            folds = workers(
                delayed(self._fold)(rows.take(own).weighed(), rows.take(held_out), gammas, alphas, seed, report)
                for own, held_out in splits
            )
        scores, gaps = (np.array([fold[part] for fold in folds]) for part in (0, 1))
        tried = np.array(list(product(gammas, alphas)))
        _, told = chosen(dict(zip(("gamma", "alpha"), tried.T, strict=True)), scores, gaps, [tried[:, 1], -tried[:, 0]])
        self.__dict__ |= told
        warn_of_gaps(gaps, float(self.tol))
        rows = rows.weighed()
        self._learn_features(rows, self.gamma_ / rows.X.shape[1], seed)
        with without_their_warnings():
            self._fit_linear(self._pushed(rows, seed), self.alpha_)
        self._warn_uncertified()
        return self

    def _fold(
        self, own: Rows, held_out: Rows, gammas: Array, alphas: Array, seed: int, report: Report
    ) -> tuple[list[float], list[float]]:
        """Return the validation scores and gaps of one fold, for every alpha at every gamma."""
        n_classes = len(self.classes_)
        model, scores, gaps = copy(self), [], []
        for gamma in gammas:
            model._learn_features(own, gamma / own.X.shape[1], seed)
            pushed, asked = model._pushed(own, seed), model._asked_again(held_out, seed)
            model.__dict__.pop("model_", None)
            for alpha in alphas:
                model._fit_linear(pushed, float(alpha))
                losses = [
                    log_loss(held_out.codes, model._shares(Z), sample_weight=held_out.weights, labels=range(n_classes))
                    for Z in asked
                ]
                scores.append(-float(np.mean(losses)))
                gaps.append(model.gap_)
                report(f"gamma {gamma:g}, alpha {alpha:g}: score {scores[-1]:.4f}, gap {gaps[-1]:.1e}")
        return scores, gaps

    def _asked_again(self, rows: Rows, seed: int) -> list[Array]:
        """Return the features of rows that are measured again, at each level of noise for validation."""
        effect = self.features_.uncertainty_effect(rows.X.shape[1])
        if rows.noise is None:
            return [effect.transform(rows.X)]
        levels = self.levels if self.deploy_noise is None else [self.deploy_noise]
        rng, noises = np.random.default_rng([seed, 1]), [rows.noise.times(float(level)) for level in levels]
        return [self._means(effect, [rows.X + noise.drawn(rng)], noise)[0] for noise in noises]
