"""Linear scores of rows with Gaussian noise: their deviations, flips of predictions, and class probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from sklearn.utils import check_random_state

from holdfast._core.allowed import SEED, Choice, Count, arguments
from holdfast._core.caller import warn_caller
from holdfast._core.labels import check_columns
from holdfast._core.loss import Array, Loss
from holdfast._core.metadata import NoiseByRow, takes_metadata
from holdfast._core.offers import offered_if
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast._training.moderated_link import moderation
from holdfast.estimators.flips import flip_probabilities
from holdfast.estimators.kernel_scores import KernelScores
from holdfast.estimators.linear import ROUTING
from holdfast.estimators.scores import against_the_rest, among_all, score_deviations

NEEDS_NOISE = f"Pass X_std, X_cov or X_factor (zeros for exact rows). {ROUTING}"


def _is_proper(estimator: NoisyScores) -> bool:
    loss = estimator._loss()
    if not loss.is_proper:
        raise AttributeError(
            f"{type(estimator).__name__} has no predict_proba with loss={estimator.loss!r}, which models no probability. Use "
            "loss='logistic'; flip_probability says how likely the noise is to change a prediction."
        )
    return True


def _has_known_noise(estimator: NoisyScores) -> bool:
    if not estimator._has_kernel:
        return True
    raise AttributeError(
        f"{type(estimator).__name__}(kernel={estimator.kernel!r:.40}) has no flip_probability and no score_std: its noise is "
        "that of the kernel's features, not of the inputs. holdfast.flip_probability(model, X, noise) asks about the inputs."
    )


class NoisyScores(KernelScores):
    """A classifier that was trained for Gaussian noise; if `row_noise_` is True, it was stated for each row."""

    loss: Any
    link: str | None
    multiclass_: str
    row_noise_: bool

    def _loss(self) -> Loss:
        """Return the training loss."""
        raise NotImplementedError

    def _noise(self) -> UncertaintySet:
        """Return the noise stated in the constructor."""
        raise NotImplementedError

    @offered_if(_has_known_noise)
    @takes_metadata
    @arguments(method=Choice("auto", "bound"), n_draws=Count(), random_state=SEED)
    def flip_probability(
        self,
        X: Any,
        *,
        method: str = "auto",
        n_draws: int = 1000,
        random_state: Any = 0,
        **metadata: Unpack[NoiseByRow],
    ) -> Array:
        r"""Return the probability that the noise changes each prediction.

        With two classes it is exactly :math:`\Phi(-|w^\top x + b| / t)`. With three it is exact too, by the normal law
        of two leads. With more it is an estimate from draws of the scores; its standard error is at most the bound
        below over :math:`2\sqrt{n_\text{draws}}`, so small if changes are rare. The function :func:`flip_probability`
        returns the standard error. ``method="bound"`` gives the *upper bound*
        :math:`\sum_{l \ne k} \Phi(-(f_k - f_l) / t_{kl})`, at most 1, for the predicted class k and scores f, where
        :math:`t_{kl}` is the standard deviation of :math:`f_k - f_l` under the noise. It can be twice the probability
        or more.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        **metadata
            The noise of each row as in `fit`, taken as stated, never multiplied by `noise`: after training with
            ``noise=4`` and ``X_std=S``, pass ``X_std=4 * S`` for the same noise. Without metadata, the noise of the
            constructor is used. A model that was fitted with metadata, or has no noise (``noise=None``), needs them
            here.
        method : {"auto", "bound"}, default="auto"
        n_draws : int, default=1000
            Draws of the scores of each row, with more than three classes.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        ndarray of shape (n_samples,)
            With two classes between 0 and 0.5; 0 without noise. If the covariance is only partly known (`unknown` of
            :class:`GaussianNoise`), the largest probability that any covariance gives; with several classes, the bound
            with the largest deviations.
        """
        check_columns(X, metadata, self)
        scores = self.decision_function(X)
        noise = self._noise_of_scores(len(scores), metadata)
        seed = int(check_random_state(random_state).randint(1 << 31))
        return flip_probabilities(scores, self.coef_, noise, method=method, n_draws=int(n_draws), seed=seed)

    @offered_if(_has_known_noise)
    @takes_metadata
    def score_std(self, X: Any, **metadata: Unpack[NoiseByRow]) -> Array:
        r"""Return the standard deviation :math:`t = \sqrt{w^\top C w}` that the noise gives to each row's score.

        Takes noise as `flip_probability` does; if the covariance is only partly known, it is the largest that any
        covariance gives. A prediction with |score| > 2 * score_std is certain at two sigma.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With more than two classes, the deviations of the predicted class's leads over each class; 0 over itself.
        """
        check_columns(X, metadata, self)
        scores = self.decision_function(X)
        return score_deviations(scores, self.coef_, self._noise_of_scores(len(scores), metadata))

    @offered_if(_is_proper)
    @takes_metadata
    def predict_proba(self, X: Any, **metadata: Unpack[NoiseByRow]) -> Array:
        r"""Return class probabilities :math:`\mathbb E\,\mathrm{sigmoid}(w^\top x + b + tZ)`, moderated by each row's noise.

        With ``link="moderated"`` they are the probabilities that the model was trained for, sigmoid(r (w'x + b)), which
        differ by up to 0.02. Only with ``loss="logistic"``. Takes noise as `flip_probability` does; but a model that
        was fitted with the noise of each row, and is given none here, returns plain, unmoderated probabilities, and
        warns.

        With more than two classes they are the softmax of the scores, averaged approximately, by probabilities of pairs
        of classes as in :class:`ModeratedClassifier`; but t is the root mean square of the pairs' deviations, so that
        the predicted class is the likeliest. With ``multiclass="ovr"`` they are the probabilities of each class against
        the rest, scaled to sum to 1, with the root mean square of the classes' deviations as t.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        self._refuse_errors_of_inputs(metadata, "predict_proba")
        check_columns(X, metadata, self)
        # noise of the kernel's features is isotropic, so coordinates in the span of the weights are enough
        coef = self._in_span_ if hasattr(self, "dual_coef_") else self.coef_
        noise = None
        if self.row_noise_ and not metadata:
            warn_caller(
                f"{type(self).__name__}.predict_proba: this model was fitted with the noise of each row and is given none "
                f"here, so these are plain probabilities, which are too sure of noisy rows. {NEEDS_NOISE}",
                UserWarning,
            )
        else:
            stated = self._noise().as_stated(metadata) if metadata else self._noise().at_prediction()
            noise = stated.at(np.broadcast_to(0.0, (len(scores), coef.shape[1])), metadata)
        loss = self._loss()

        def probability(score: Array, t: Array) -> Array:
            if self.link is None:
                return loss.evaluate(1.0 + score, t)[1]
            return loss.evaluate(1.0 + moderation(t) * score, 0.0 * t)[1]

        if scores.ndim > 1 and self.multiclass_ == "joint":
            return among_all(scores, coef, noise, probability, is_alike=True)
        return against_the_rest(scores, coef, noise, probability)

    @offered_if(_is_proper)
    @takes_metadata
    def predict_log_proba(self, X: Any, **metadata: Unpack[NoiseByRow]) -> Array:
        """Return the logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X, **metadata))

    def _refuse_errors_of_inputs(self, metadata: Mapping[str, Any], method: str) -> None:
        """Raise if there is a kernel and errors of rows are given."""
        if self._has_kernel and metadata:
            raise ValueError(
                f"{self._quoted('kernel')}.{method}(..., {next(iter(metadata))}=...): errors of the inputs are not "
                "noise of the kernel's features. Use NoiseAwareClassifier, which takes them, or kernel='linear'."
            )

    def _noise_of_scores(self, n_samples: int, metadata: Mapping[str, Any]) -> RowSets:
        """Return the noise of these rows; raise if it is not known."""
        if self.row_noise_ and not metadata:
            raise ValueError(
                f"{type(self).__name__}: this model was fitted with the noise of each row, so it needs theirs here too. "
                f"{NEEDS_NOISE}"
            )
        stated = self._noise().as_stated(metadata)
        return stated.at(np.broadcast_to(0.0, (n_samples, self.coef_.shape[1])), metadata)
