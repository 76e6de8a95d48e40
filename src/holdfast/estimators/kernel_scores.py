"""Scores that are linear in a kernel's features, with weights of training rows instead of weights of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from holdfast._certificates.fitted import kernel_model
from holdfast._certificates.models import Model
from holdfast._core.exceptions import NoCertificateError
from holdfast._core.loss import Array
from holdfast._core.solution import Solution
from holdfast._problems.gram_rows import GramRows
from holdfast._problems.labelled_rows import LabelledRows
from holdfast._proofs.certificate import Certificate
from holdfast._training.training import proved_in
from holdfast.estimators.linear import LinearClassifier, Task
from holdfast.features.gram import BLOCK_ENTRIES, Kernel, KernelSpace, bandwidth
from holdfast.solvers.stochastic import generator

LARGEST_GRAM = 10_000
"""The most rows for which the kernel of all pairs is formed (800 MB)."""


@dataclass(kw_only=True)
class KernelTask(Task):
    """The problems that `fit` has to solve, in coordinates of a kernel's features."""

    space: KernelSpace
    labelled: LabelledRows


class KernelScores(LinearClassifier):
    """A linear classifier that, with a `kernel`, has weights `dual_coef_` of the rows `support_` instead of `coef_`."""

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    n_landmarks: Any
    dual_coef_: Array
    support_: NDArray[np.intp]
    support_vectors_: Any
    rkhs_norm_: Array
    _kernel_: Kernel
    _in_span_: Array

    @property
    def _has_kernel(self) -> bool:
        return not (isinstance(self.kernel, str) and self.kernel == self.linear_kernel)

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        tags.input_tags.sparse = not self._is_precomputed
        return tags

    def _check_kernel(self) -> None:
        """Raise if parameters contradict each other, before rows are checked."""
        call = f"{type(self).__name__}(kernel={self.kernel!r:.40}"
        if self.n_landmarks is not None and (self._is_precomputed or not self._has_kernel):
            raise ValueError(
                f"{call}, n_landmarks={self.n_landmarks!r}): landmarks are rows between which a kernel is evaluated. Give "
                "kernel='rbf' or another, or leave n_landmarks out."
            )

    def _space_of(self, X: Any, weights: Array) -> KernelSpace:
        """Return the span of training rows in the kernel's space; gamma="scale" takes the variance with `weights`."""
        name, n = type(self).__name__, X.shape[0]
        call = f"{name}(kernel={self.kernel!r:.40}).fit"
        if self._is_precomputed:
            if X.shape[1] != n:
                raise ValueError(f"{call}: X has shape {X.shape}; it is square, one row and column a sample.")
            space = KernelSpace.of_products(X.astype(np.float64, copy=False), call)
        else:
            gamma = None if callable(self.kernel) else bandwidth(self.gamma, X, weights)
            self._kernel_ = Kernel(self.kernel, gamma, self.degree, self.coef0, name)
            if self.n_landmarks is None:
                if n > LARGEST_GRAM:
                    raise ValueError(
                        f"{call}: the kernel of {n} rows with each other would take n^2 * 8 = {8 * n**2:.2g} bytes. "
                        "State how many rows to use as landmarks instead, such as n_landmarks=500."
                    )
                space = KernelSpace.of_products(self._kernel_(X, X), call)
            else:
                rng, among = generator(self.random_state), np.flatnonzero(weights)
                space = KernelSpace.of_landmarks(self._kernel_, X, among, int(self.n_landmarks), rng)
        if len(space.support) == 0:
            raise ValueError(f"{call}: the kernel is 0 at all rows. Use another kernel, or other units.")
        return space

    def _complete(self, task: Task, fits: Sequence[tuple[Solution, Certificate]]) -> None:
        if not self._has_kernel:
            return super()._complete(task, fits)
        assert isinstance(task, KernelTask)
        rows = task.labelled
        if task.space.gram is not None:
            # the coordinates leave out rows that depend on others up to rounding; prove with the full kernel matrix
            seen = GramRows(task.space, n_extra=1 + len(rows.classes))
            tol, max_iter = float(self.tol), int(self.max_iter)
            fits = [
                proved_in(problem, found, seen, tol=tol, max_iter=max_iter)
                for problem, (found, _) in zip(task.problems, fits, strict=True)
            ]
        super()._complete(task, fits)
        self._to_support(task.space, rows.X, rows.codes)
        return None

    def _to_support(self, space: KernelSpace, X: Any, codes: NDArray[np.intp]) -> None:
        """Replace the weights of coordinates by weights of rows."""
        theta = cast(Array, self.__dict__.pop("coef_"))
        order = np.argsort(space.support)
        self.support_ = space.support[order]
        self.dual_coef_ = np.ascontiguousarray(space.factor.weights(theta.T)[order].T)
        self.rkhs_norm_ = np.linalg.norm(theta, axis=1)
        # the classes' weights in an orthonormal basis of their span: enough for the distances between them
        self._in_span_ = np.linalg.qr(theta.T).R.T
        self.n_support_ = np.bincount(codes[self.support_], minlength=len(self.classes_))
        if not self._is_precomputed:
            self.support_vectors_, self.gamma_ = X[self.support_], self._kernel_.gamma

    def _scores(self, X: Any) -> Array:
        if not hasattr(self, "dual_coef_"):
            return super()._scores(X)
        parts = gen_batches(X.shape[0], max(1, BLOCK_ENTRIES // len(self.support_)))
        scores = np.concatenate([self._products(X[part]) @ self.dual_coef_.T for part in parts]) + self.intercept_
        return scores.ravel() if len(self.dual_coef_) == 1 else scores

    def _products(self, X: Any) -> Any:
        """Return the kernel between rows and the rows of `support_`."""
        return self._kernel_(X, self.support_vectors_) if hasattr(self, "_kernel_") else X[:, self.support_]

    def certificate_model(self) -> Model:
        """Return the fitted classifier as certificates see it."""
        if not hasattr(self, "dual_coef_"):
            return super().certificate_model()
        if not hasattr(self, "_kernel_") or self._kernel_.kernel != "rbf":
            raise NoCertificateError(f"{self!r:.80}: of kernels only kernel='rbf' is certified.")
        return kernel_model(self.support_vectors_, cast(float, self.gamma_), self.dual_coef_, self.intercept_)
