"""Robustness curves: how accuracies fall as perturbations grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from holdfast._certificates.pipelines import exact_columns
from holdfast._core.allowed import JOBS, LARGEST, Count, Switch, arguments, as_numbers
from holdfast._core.labels import check_features
from holdfast._core.metadata import known_metadata
from holdfast._core.progress import reporter
from holdfast._core.rounding import Array
from holdfast._core.summary import Summary, counted, digits, percent, some
from holdfast._core.version import __version__
from holdfast.evaluate.attacks import certified_accuracy
from holdfast.evaluate.cells import Cells, digest, fingerprint
from holdfast.evaluate.fitted import labels_of, refuse_spread, rows_for, stated_of
from holdfast.evaluate.perturbations import checked_perturbation
from holdfast.features.rows import as_given


@dataclass(frozen=True, kw_only=True)
class RobustnessCurve(Summary):
    """Accuracies of models on perturbed rows."""

    models: tuple[str, ...]
    levels: Array
    """Shape (n_levels,)."""
    accuracy: Array
    """The accuracy of each repeat, shape (n_models, n_levels, n_repeats)."""
    certified: Array
    """Proved lower bounds on accuracy under any such perturbation, shape (n_models, n_levels); NaN if none is known."""
    uncertainty: str
    """The set, as text."""
    adversary: str
    """Who chose the perturbations: chance, or an adversary."""
    unit: str
    """The unit of the levels."""
    n_samples: int

    @property
    def mean(self) -> Array:
        """Mean accuracies, shape (n_models, n_levels)."""
        return self.accuracy.mean(axis=2)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the means over repeats, for these very rows, (n_models, n_levels); NaN for one repeat."""
        n = self.accuracy.shape[2]
        if n == 1:
            return np.full(self.accuracy.shape[:2], np.nan)
        return np.asarray(self.accuracy.std(axis=2, ddof=1) / np.sqrt(n))

    def _title(self) -> str:
        return f"Accuracy on {counted(self.n_samples, 'row')}"

    def _columns(self) -> list[str]:
        return [self.unit, *(digits(self.levels[k]) for k in some(len(self.levels)))]

    def _lines(self) -> list[list[str]]:
        shown, lines = some(len(self.levels)), []
        for name, mean, certified in zip(self.models, self.mean, self.certified, strict=True):
            lines.append([name, *(percent(mean[k]) for k in shown)])
            if not np.all(np.isnan(certified)):
                lines.append([f"{name}, certified", *(percent(certified[k]) for k in shown)])
        return lines

    def _notes(self) -> list[str]:
        repeats = self.accuracy.shape[2]
        errors = "" if repeats == 1 else f", standard errors up to {percent(np.max(self.standard_error))}"
        return [f"{self.uncertainty}, adversary {self.adversary!r}, {counted(repeats, 'draw')} at each level{errors}."]

    def to_frame(self) -> Any:
        """Return a pandas frame with one line for each model and level: model, level, accuracy, standard_error, certified."""
        try:
            import pandas
        except ImportError:
            raise ImportError("RobustnessCurve.to_frame needs pandas: pip install pandas.") from None
        n_models, n_levels = self.mean.shape
        return pandas.DataFrame(
            {
                "model": np.repeat(self.models, n_levels),
                "level": np.tile(self.levels, n_models),
                "accuracy": self.mean.ravel(),
                "standard_error": self.standard_error.ravel(),
                "certified": self.certified.ravel(),
            }
        )


@arguments(n_repeats=Count(), n_jobs=JOBS, progress=Switch())
def robustness_curve(
    models: Any,
    X: Any,
    y: Any,
    uncertainty: Any,
    levels: Any,
    *,
    adversary: str = "random",
    n_repeats: int = 10,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
    resume: Any = None,
    **metadata: Any,
) -> RobustnessCurve:
    """Return the accuracy of fitted models on perturbed rows, at growing multiples of a stated uncertainty.

    A level multiplies the set. The adversary chooses the perturbation:

    ====================  ======================================  =======================================================
    set                   ``"random"``                            ``"greedy"``, ``"exact"``, ``"relaxed"``
    ====================  ======================================  =======================================================
    `GaussianNoise`       noise is drawn                          noise has no bounds
    `Box`, `Ball`, other  errors are drawn uniformly from it      exact: the worst point of each row's set, linear models;
    sets, and sums                                                greedy: the worst that :func:`worst_case` finds, any model
    `FeatureDeletion`     deletes random features that are not 0  linear models. exact: deletes the worst whole
                          while they fit the budget               features; greedy: by the fall of the label's lead per
                                                                  value; relaxed: deletes parts of features too
    `CorruptedFeatures`   replaces random features by noise       greedy: those that a linear model depends on most
    `LabelFlips`          replaces random labels by other         not available
                          classes: shows how far accuracies can
                          be trusted
    `Quantize`            rounds values; nothing is random        not available
    ====================  ======================================  =======================================================

    Models that average over errors of rows, such as :class:`NoiseAwareClassifier`, are given the noise at each level.
    With ``adversary="random"`` all models see the same rows; other adversaries attack each model with rows of its own.
    Draws depend on `random_state`, level and repeat only: not on the models, the other levels, or `n_jobs`.

    Parameters
    ----------
    models : dict of str to classifier, sequence of classifiers, or classifier
        Fitted.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows that the models were not trained on, in the units that the models take.
    y : array-like of shape (n_samples,)
    uncertainty : UncertaintySet, CorruptedFeatures, LabelFlips or Quantize
        The perturbation. A set without a stated size has size 1, so that levels are sizes.
    levels : array-like of shape (n_levels,)
        Multiples >= 0 of the set: of noise, radii, half-widths, or numbers of features or labels. 0 leaves the rows as
        they are, except that features of value 0 in ``FeatureDeletion(values=...)`` cost nothing and may still be
        deleted.
    adversary : {"random", "greedy", "exact", "relaxed"}, default="random"
    n_repeats : int, default=10
        Draws at each level. Only one is made if nothing is random.
    random_state : int, default=0
    n_jobs : int or None, default=None
        The number of threads. A cell, one repeat at one level, is run by one thread.
    progress : bool, default=False
        Whether to log progress to the logger "holdfast" and the screen.
    resume : path-like, default=None
        A file for finished cells. After an interruption, the same call continues where it stopped. Levels, repeats or
        models may be added, also by other threads at the same time. The file holds JSON lines, nothing that could be
        executed, and is written as a whole or not at all. Models are identified by their names, parameters and fitted
        attributes.
    **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius
        The sizes of sets that differ by row, for these rows, as for training; the set's own size multiplies them.

    Returns
    -------
    RobustnessCurve

    Examples
    --------
    >>> from holdfast import Box
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> curve = robustness_curve(LogisticRegression().fit(X, y), X, y, Box(1.0), [0, 0.5, 4.0])
    >>> curve.mean.round(1), curve.certified
    (array([[1. , 1. , 0.7]]), array([[1., 1., 0.]]))
    """
    call = "robustness_curve"
    trial = Trial(models, X, y, uncertainty, adversary, metadata, call)
    sizes = checked_levels(levels, call)
    counts = trial.repeats(n_repeats)
    seed = checked_seed(random_state, call)
    facts = {"holdfast": call, "version": __version__, "data": digest(trial.rows, trial.labels), "random_state": seed}
    facts |= {"uncertainty": digest(type(uncertainty).__name__, uncertainty.get_params()), "adversary": adversary}
    facts["metadata"] = digest(trial.metadata)
    cells = Cells(resume, facts, call)
    known = {
        name: fingerprint(model, f"{call}(resume=...)") for name, model in trial.models.items() if resume is not None
    }
    report = reporter(int(progress))
    jobs = [(float(level), repeat) for level in sizes for repeat in range(counts)]

    def cell(name: str, level: float, repeat: int) -> tuple[Any, ...]:
        return (name, known.get(name, ""), level, repeat)

    def run(number: int, level: float, repeat: int) -> None:
        missing = [name for name in trial.models if cell(name, level, repeat) not in cells.found]
        hits = trial.hits(missing, level, repeat, seed)
        cells.add({cell(name, level, repeat): float(np.mean(hits[name])) for name in missing})
        report(f"{call}: level {level:g}, repeat {repeat + 1}, cell {number + 1} of {len(jobs)}")

    try:
        Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(run)(k, *job) for k, job in enumerate(jobs))
    finally:
        cells.close()
    found = [[[cells.found[cell(n, float(m), r)] for r in range(counts)] for m in sizes] for n in trial.models]
    return RobustnessCurve(
        models=tuple(trial.models),
        levels=sizes,
        accuracy=np.array(found),
        certified=np.array([[trial.certified(name, float(m)) for m in sizes] for name in trial.models]),
        uncertainty=repr(uncertainty),
        adversary=adversary,
        unit=trial.perturbation.unit,
        n_samples=len(trial.labels),
    )


class Trial:
    """Fitted models, test rows and labels, and the perturbation of these."""

    def __init__(
        self, models: Any, X: Any, y: Any, uncertainty: Any, adversary: Any, metadata: Mapping[str, Any], call: str
    ):
        check_features(X, {"uncertainty": uncertainty})
        stated = stated_of(None, X, known_metadata(metadata, call), call)
        # index and column labels have been checked; rows from draws have none, so drop them
        self.metadata = {
            name: np.asarray(value) if hasattr(value, "columns") else value for name, value in stated.items()
        }
        self.perturbation = checked_perturbation(uncertainty, adversary, self.metadata, X, call)
        self.models, self.X = named(models, call), X
        # every model checks the rows before any work is done
        rows = [rows_for(model, X) for model in self.models.values()]
        self.rows, self.labels = rows[0], np.asarray(y).ravel()
        for model in self.models.values():
            labels_of(model, y, self.rows.shape[0], call)
            self.perturbation.refuse_categories(exact_columns(model, X), X)
            refuse_spread(model, X, call)

    def repeats(self, n_repeats: int) -> int:
        """Return the number of draws: 1 if nothing is random."""
        return int(n_repeats) if self.perturbation.is_random else 1

    def hits(self, names: Sequence[str], level: float, repeat: int, seed: int) -> dict[str, NDArray[np.bool_]]:
        """Return which rows each model gets right, shape (n_samples,) each."""
        found, shared = {}, None
        for name in names:
            model = self.models[name]
            if shared is None or self.perturbation.needs_model:
                # one generator for each level (by its bits) and repeat: draws do not depend on other cells
                rng = np.random.default_rng([seed, repeat, int(np.float64(level).view(np.uint64))])
                shared = self.perturbation.apply(self.rows, self.labels, level, rng, model)
            rows, labels = shared
            known = self.perturbation.told(model, self.rows, level)
            found[name] = np.asarray(np.asarray(model.predict(as_given(self.X, rows), **known)) == labels)
        return found

    def certified(self, name: str, level: float) -> float:
        """Return a proved lower bound on a model's accuracy under any such perturbation, NaN if none is known."""
        bounds = self.perturbation.bounds(self.rows, level)
        if bounds is None:
            return np.nan
        return certified_accuracy(self.models[name], self.X, self.labels, bounds.uncertainty, **bounds.metadata)


def named(models: Any, call: str) -> dict[str, Any]:
    """Return models by name: as in a dict, else by the names of their classes, numbered where a name is repeated."""
    if isinstance(models, Mapping):
        found = dict(models)
    else:
        listed = list(models) if isinstance(models, list | tuple) else [models]
        kinds = [type(model).__name__ for model in listed]
        found = {
            kind if kinds.count(kind) == 1 else f"{kind} {kinds[: k + 1].count(kind)}": model
            for k, (kind, model) in enumerate(zip(kinds, listed, strict=True))
        }
    if not found or not all(isinstance(name, str) and hasattr(model, "predict") for name, model in found.items()):
        raise ValueError(
            f"{call}(models={models!r:.80}): give a dict of names and fitted classifiers, a list of them, or one."
        )
    return found


def checked_levels(levels: Any, call: str, name: str = "levels") -> Array:
    """Return levels as an array after checking them."""
    try:
        found = as_numbers(levels)
    except TypeError:
        found = np.zeros(0)
    if found.ndim != 1 or not found.size or not np.all((found >= 0) & (found <= LARGEST)):
        given = levels if name == "levels" else levels[0]
        raise ValueError(f"{call}({name}={given!r:.80}): give numbers from 0 to {LARGEST:g}, and at least one.")
    return found


def checked_seed(random_state: Any, call: str) -> int:
    """Return the seed after checking it."""
    if random_state not in Count(0):
        raise ValueError(
            f"{call}(random_state={random_state!r:.80}): give an integer >= 0, so that the same draws can be made again."
        )
    return int(random_state)
