"""Lengths of ellipsoids by stochastic descent, in weights and lengths at once."""

from __future__ import annotations

import numpy as np

from holdfast._core.loss import Array
from holdfast._core.solver import Report, silent
from holdfast._training.lengths import SMOOTHING, ValidatedLengths

PASSES, MOST_STEPS, BATCH = 30, 5000, 16
"""Passes over the training rows, the largest number of steps, and the rows of each kind in a step."""
FIRST_STEP = 0.1
"""The first step of the lengths, as a share of the largest lengths."""


def stochastic_lengths(
    problem: ValidatedLengths,
    start: Array,
    lower: Array,
    upper: Array,
    *,
    rng: np.random.Generator,
    report: Report = silent,
) -> Array:
    """Return the squared lengths found by stochastic descent, averaged over the second half of the steps.

    A step draws a few training rows, for a proximal step of the weights on the robust hinge loss, and a few validation
    rows. The gradient of the validation rows' hinge loss is propagated back through this one step to the lengths, which
    move against it and are clipped to their bounds. The gradient is biased, because it ignores how the weights depend
    on the lengths through earlier steps. The step size of the lengths decreases with the square root of the number of
    steps, in units of the typical gradient so far. `start` and the bounds are squares.
    """
    own, judged = problem.trained[0], problem.judged[0]
    total, n = float(own.weights.sum()), own.rows.n_samples
    alpha, lengths = own.alpha / total, float(own.rows.column_squares.sum()) / n  # for the mean over rows
    thetas = [np.zeros(own.n_parameters) for own in problem.trained]
    largest, low, sizes = np.sqrt(upper), np.sqrt(lower), np.sqrt(start)
    n_steps, typical = min(MOST_STEPS, -(-PASSES * n // BATCH)), 0.0
    mean, n_means = np.zeros_like(sizes), 0
    for step in range(1, n_steps + 1):
        some = rng.choice(n, BATCH, p=own.weights / total)
        others = rng.choice(judged.rows.n_samples, BATCH, p=judged.weights / judged.weights.sum())
        rate, gradient = 1 / (alpha * step + max(lengths, 1.0)), np.zeros_like(sizes)
        part = problem.part(some, others, drawn=True)
        bound = part.sets(np.square(sizes)).smoothed(SMOOTHING)
        for k, (trained, validated) in enumerate(zip(part.trained, part.judged, strict=True)):
            at = trained.having(sets=bound, alpha=0.0)
            w, b = at.split(thetas[k])
            slope, b_slope = at.split(at.value_and_gradient(thetas[k])[1])
            moved = at.join((w - rate * slope) / (1 + rate * alpha), b - min(rate, 1 / np.sqrt(step)) * b_slope)
            pushed = validated.value_and_gradient(moved)[1]
            # the weights' dependence on the lengths is seen through this step alone
            gradient -= part.pull(at, thetas[k], pushed, np.square(sizes))
            thetas[k] = moved
        gradient *= 2 * sizes * largest
        typical += (float(gradient @ gradient) - typical) / step
        if typical > 0:
            sizes = sizes - FIRST_STEP / np.sqrt(step) * largest * gradient / np.sqrt(typical)
        sizes = np.clip(sizes, low, largest)
        if 2 * step > n_steps:
            n_means += 1
            mean += (sizes - mean) / n_means
        if step % 1000 == 0:
            report(f"stochastic step {step} of {n_steps}")
    return np.clip(np.square(mean), lower, upper)
