"""A scikit-learn Pipeline that carries uncertainty through its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from holdfast._certificates.pipelines import view_of
from holdfast._certificates.views import View
from holdfast._core.allowed import NOTHING, Choice, Instance, Switch, arguments, refuse_wrong, short
from holdfast._core.arithmetic import dense
from holdfast._core.caller import warn_caller
from holdfast._core.labels import check_features
from holdfast._core.metadata import METADATA, known_metadata
from holdfast._core.offers import offered_if
from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet
from holdfast.estimators.linear import ELSEWHERE, ROUTING
from holdfast.estimators.units import units_looked_at, warn_of_units
from holdfast.features.carrying import NONLINEAR, Carried, added, carry, effects_of, rows_before, together, transformed
from holdfast.features.effects import UNLIKELY
from holdfast.features.rows import check_params, checked_metadata, known_numbers, n_columns, numbers_of, with_numbers
from holdfast.features.steps import CLAIMS, may_add_errors, may_average, may_lose_categories
from holdfast.pipeline.stated_sets import (
    StatedSet,
    draws_errors,
    estimators_taking,
    exact_rows,
    holders,
    meaning,
    predicts,
    takes,
    takes_by_name,
)
from holdfast.uncertainty import GaussianNoise
from holdfast.uncertainty.affine_map import AffineMap

NAME = "UncertainPipeline"
SETTINGS = {
    "nonlinear": Choice(*NONLINEAR),
    "effects": Instance(Mapping, "give a dict from names of steps to what they are") | NOTHING,
    "transform_input": Instance((list, tuple, set), "give a list of names") | NOTHING,
    "verbose": Switch(),
}
PROBABILITIES = ("predict_proba", "predict_log_proba")
PREDICTIONS = ("predict", "decision_function", "score")
PLAIN = ("fit", *PROBABILITIES, *PREDICTIONS)
"""What may be asked for without any uncertainty."""


def _offered(method: str) -> Callable[[UncertainPipeline], bool]:
    """Return a check of whether the last step has a method; it raises the step's own error where it has not."""

    def check(pipeline: UncertainPipeline) -> bool:
        try:
            getattr(pipeline._final_estimator, method)
        except AttributeError as error:
            hint = f" {ELSEWHERE[method]}." if method in ELSEWHERE else ""
            raise AttributeError(f"{NAME} has no {method}, as its last step has none: {error}.{hint}") from error
        return True

    return check


class UncertainPipeline(Pipeline):
    r"""A Pipeline in which errors of the rows are scaled, mixed and bent as the rows are, at fit and at prediction.

    Sets in the constructor of the last step (``Ball(0.3)``, ``GaussianNoise(cov=C)``, ...) and metadata (``X_std``, ...) are
    stated in the units of X, the rows that the pipeline is given; the last step is trained and asked with what they become:

    ===============================================  ==================================================================
    step                                             uncertainty after it
    ===============================================  ==================================================================
    StandardScaler, MinMaxScaler, MaxAbsScaler,      exact, for all sets: z = A x + c has the errors A d. Deviations by
    RobustScaler, PCA, IncrementalPCA, FastICA,      row stay such where no features are mixed, and become covariances
    TruncatedSVD, random projections, selectors,     elsewhere; a box becomes a zonotope, a ball an ellipsoid.
    "passthrough"                                    Deletions pass where no features are mixed
    PowerTransformer, QuantileTransformer,           Boxes by their end points, exactly; other sets by the smallest box
    MinMaxScaler(clip=True), log, sqrt, exp, ... in  around them, an outer approximation. Noise by its moments, integrals of
    a FunctionTransformer                            the step; by the derivative where one deviation leaves its domain.
                                                     ``"linearise"``: noise and ellipsoids by the slope of the secant over
                                                     one deviation to each side, an approximation
    PolynomialFeatures                               Exact bounds of each product, an outer approximation of all. Noise by
                                                     moments, without products of errors of different features;
                                                     ``"linearise"``: by derivatives
    ConditionalImputer                               noise: exact, errors of known entries reach fill-ins, whose conditional
                                                     covariance is added; sets: intervals
    CategoryEncoder                                  its inputs have no error; a missing category is any of its one-hot corners
    SpreadImputer                                    exact, plus the spread of their column for entries that are filled in;
                                                     noise of an entry that several branches fill in is refused
    SimpleImputer                                    exact, if nothing is missing
    OneHotEncoder, OrdinalEncoder                    their inputs must have no error; what OneHotEncoder makes zeros of is any
                                                     category, for certificates
    ColumnTransformer, FeatureUnion, Pipeline        as what is inside. Affine parts beside one that is not are carried by
                                                     boxes or deviations too
    FunctionTransformer, any other step              as `effects` or :func:`teach_step` say; an error otherwise
    ===============================================  ==================================================================

    Parameters of the last step are never changed, so that ``get_params`` and a search over ``clf__uncertainty__radius`` speak
    of the units of X. Its fitted attributes, such as ``pipe[-1].coef_``, are in its own units: ask the pipeline, not
    ``pipe[-1]``, about certainty.

    Errors that a step adds, those of entries that SpreadImputer fills in, reach a last step that states none as well: as
    intervals for ``RobustLinearClassifier(None)``, as noise for one that takes ``X_std``; one that takes neither is refused
    where entries are missing. ModeratedClassifier is told of them at `predict_proba`; last steps that were trained with them
    but whose probabilities are no averages over them warn there. A search over sets belongs around the pipeline, not in its
    last step.

    `predict`, `decision_function` and `score` take metadata of their rows where that matters: where the last step takes them,
    as NoiseAwareClassifier does, or where steps average over errors, as ExpectedFeatures does. Elsewhere these and `transform`
    are those of the plain Pipeline. `predict_proba`, `flip_probability`, `score_std`, `certify` and `certified_margin`, where
    the last step has them, take metadata of their rows as it does, and `worst_case_data` gives rows in the units of X.
    Certificates account for rounding in affine steps; what it does in curved ones is not known.

    With metadata routing on, searches, ``CalibratedClassifierCV`` and the like bring metadata to a pipeline inside them without
    a request. ``StackingClassifier`` does too, but it hands all that its `fit` is given to its final estimator as well,
    whatever that one requests, beside predictions that have other columns than X. That ends in an error even for final
    estimators that know of ``X_std``. Give it one that disregards it::

        class Final(LogisticRegression):
            def fit(self, X, y, X_std=None):
                return super().fit(X, y)

    or pipelines that are fitted already, and ``cv="prefit"``.

    Parameters
    ----------
    steps : list of (str, estimator)
    transform_input : list of str, default=None
        As for Pipeline; not for the metadata above, which are carried anyway.
    memory : str or joblib.Memory, default=None
    verbose : bool, default=False
    nonlinear : {"auto", "interval", "linearise", "raise"}, default="auto"
        What to do at steps that are no affine maps. "auto": intervals for sets; for noise the root of the mean square of
        :math:`f(x + \delta) - f(x)`, f being the step, as its standard deviation. Rows stay at f(x), where predictions are
        made: what the mean of :math:`f(x + \delta)` is off from there counts as error, and is not taken off. "interval":
        sets only. "linearise": noise and ellipsoids, to first order; boxes by intervals.
    effects : dict from str to {"linear", "monotone"}, default=None
        What steps do that are not known, or not as their class does, by their names (``outer__inner`` for those inside
        others): "linear" for z = A x + c; "monotone" for functions of single features that only rise or only fall. Both are
        tried at the rows and at others made of them, which finds most mistakes but proves nothing.

    Attributes
    ----------
    row_uncertainty_ : bool
        Whether `fit` was given metadata; questions about certainty then ask for them too.
    moves_rows_ : bool
        Whether steps averaged over errors in `fit`, as ExpectedFeatures does; predictions without any then warn.
    columns_in_ : list of str or None
        The columns of the frame that `fit` was given, which questions about certainty ask for in the same order.

    See Also
    --------
    make_uncertain_pipeline, teach_step, ConditionalImputer, CategoryEncoder, SpreadImputer

    Examples
    --------
    >>> from holdfast import GaussianRobustClassifier, UncertainPipeline
    >>> from holdfast.datasets import load_breast_cancer_errors
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.preprocessing import StandardScaler
    >>> data = load_breast_cancer_errors()
    >>> pipe = UncertainPipeline([("scale", StandardScaler()), ("pca", PCA(5)), ("clf", GaussianRobustClassifier())])
    >>> pipe = pipe.fit(data.X, data.y, X_std=data.X_std)
    >>> pipe.flip_probability(data.X[:4], X_std=4 * data.X_std[:4]).round(2)
    array([0.07, 0.04, 0.01, 0.3 ])
    """

    __metadata_request__fit = dict.fromkeys(METADATA, True)
    __metadata_request__predict_proba = dict.fromkeys(METADATA, True)
    __metadata_request__predict_log_proba = dict.fromkeys(METADATA, True)
    __metadata_request__predict = dict.fromkeys(METADATA, True)
    __metadata_request__decision_function = dict.fromkeys(METADATA, True)
    __metadata_request__score = dict.fromkeys(METADATA, True)

    def __init__(
        self,
        steps: Any,
        *,
        transform_input: Any = None,
        memory: Any = None,
        verbose: Any = False,
        nonlinear: str = "auto",
        effects: Mapping[str, str] | None = None,
    ):
        self.steps = steps
        self.transform_input = transform_input
        self.memory = memory
        self.verbose = verbose
        self.nonlinear = nonlinear
        self.effects = effects

    def __getitem__(self, ind: Any) -> Any:
        found = super().__getitem__(ind)
        if not isinstance(ind, slice):
            return found
        kept = {
            "row_uncertainty_": True,
            "moves_rows_": True,
            "_is_broken": True,
            "columns_in_": ind.indices(len(self.steps))[0] == 0,
        }
        found.__dict__ |= {
            name: getattr(self, name) for name, is_kept in kept.items() if is_kept and hasattr(self, name)
        }
        effects = {
            path: said for path, said in (self.effects or {}).items() if path.split("__")[0] in found.named_steps
        }
        return found.set_params(nonlinear=self.nonlinear, effects=effects or None)

    def get_metadata_routing(self) -> Any:
        """Return the metadata that the pipeline takes itself, and those that its steps ask for."""
        own = self._get_metadata_request()
        for method in PREDICTIONS:
            for name in () if self._may_use_errors(method) else METADATA:
                getattr(own, method).add_request(param=name, alias=False)
        return super().get_metadata_routing().add_self_request(own)

    def _may_use_errors(self, method: str) -> bool:
        """Return whether errors of rows may change what the last step predicts: it takes them, or steps average over them."""
        return takes_by_name(self._final_estimator, method, "X_std") or may_average(one for _, one in self.steps[:-1])

    @property
    def averages_errors(self) -> bool:
        """Whether predictions depend on errors of rows, and take them."""
        return self._may_use_errors("predict")

    @arguments()
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        X_std: Any = None,
        X_cov: Any = None,
        X_factor: Any = None,
        X_lower: Any = None,
        X_upper: Any = None,
        X_radius: Any = None,
        **params: Any,
    ) -> Self:
        """Fit the steps, the last one with the uncertainty that the others make of what is stated here and in its constructor.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_std, X_cov, X_factor, X_lower, X_upper, X_radius : array-like, default=None
            The errors of each row, in the units of X, as the last step takes them. Frames are matched to the columns of X by
            name.
        **params
            As for Pipeline: ``step__parameter``, or with metadata routing what steps ask for; not errors of rows.
        """
        _refuse_by_step(params, f"{NAME}.fit")
        given = (X_std, X_cov, X_factor, X_lower, X_upper, X_radius)
        self._check_settings()
        stated = checked_metadata(X, dict(zip(METADATA, given, strict=True)), f"{NAME}.fit")
        self._refuse_untaken(stated)
        check_params(X, params)
        if hasattr(self._final_estimator, "fit"):
            for holder in self._holders(stated):
                check_features(X, {holder.owner: holder.uncertainty})
                # refuses what makes no sense before anything is fitted
                told = holder.uncertainty.learned_from(numbers_of(X))
                told.split(known_numbers(X), stated if holder.is_told else {})
        columns = list(X.columns) if hasattr(X, "columns") else None
        if stated:
            factor = max(holder.uncertainty.row_factor for holder in self._holders(stated) if holder.is_told)
            warn_of_units(numbers_of(X), stated, f"{NAME}.fit", factor=factor, columns=columns)
        with self._refitted():
            self._stated, self.moves_rows_ = stated, False
            try:
                with units_looked_at(), self._explained():
                    super().fit(X, y, **params)
            finally:
                changed = self.__dict__.pop("_changed", {})
                if changed:
                    self._final_estimator.set_params(**changed)
                self.__dict__.pop("_stated"), self.__dict__.pop("_carried", None)
            self.columns_in_, self.row_uncertainty_ = columns, bool(stated)
        return self

    @contextmanager
    def _refitted(self) -> Iterator[None]:
        """A time after which the pipeline is fitted, unless something goes wrong: steps are fitted in place, one by one."""
        self._is_broken = True
        yield
        del self._is_broken

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of a last step that hands nothing on without metadata routing what it was given, and why."""
        try:
            yield
        except ValueError as error:
            names = sorted(self.__dict__.get("_carried", {}))
            if not names or "enable_metadata_routing=True" not in str(error):
                raise
            final = self._final_estimator
            raise ValueError(
                f"{NAME}.fit: the last step, {final!r:.80}, is to hand {', '.join(names)} (what is stated of the rows, or what "
                "steps fill in, in its units) on to the estimators inside it, which it does with metadata routing only. Call "
                f"sklearn.set_config(enable_metadata_routing=True), and set_fit_request({'=True, '.join(names)}=True) of those "
                "estimators."
            ) from error

    def __sklearn_is_fitted__(self) -> bool:
        if "_is_broken" in vars(self):
            raise NotFittedError(
                f"{NAME}: its last fit failed and left some steps fitted anew, others not. Call fit again."
            )
        return bool(super().__sklearn_is_fitted__())

    def _check_settings(self) -> None:
        if not _are_pairs(self.steps):
            raise ValueError(
                f"{NAME}(steps={short(self.steps):.80}): give a list of pairs (name, step), and at least one."
            )
        refuse_wrong(self, SETTINGS, NAME)
        for path, said in (self.effects or {}).items():
            if said not in CLAIMS:
                raise ValueError(f"{NAME}(effects={{{path!r}: {said!r}}}): say {' or '.join(map(repr, CLAIMS))}.")
            if path not in (names := self._names_of_steps()):
                raise ValueError(
                    f"{NAME}(effects={{{path!r}: {said!r}}}): no such step. Name one of {', '.join(names)}."
                )
        if both := [name for name in self.transform_input or () if name in METADATA]:
            raise ValueError(
                f"{NAME}(transform_input=...): leave out {min(both)}, which is carried through the steps anyway."
            )

    def _names_of_steps(self) -> list[str]:
        """Return the names of all steps, ``outer__inner`` for those inside others."""
        return [
            path
            for path, value in self.get_params(deep=True).items()
            if hasattr(value, "transform") or (isinstance(value, str) and value in ("passthrough", "drop"))
        ]

    def _fit(self, X: Any, *args: Any, **options: Any) -> Any:
        Z = super()._fit(X, *args, **options)
        if "_stated" in self.__dict__ and hasattr(self._final_estimator, "fit"):
            final = self._final_estimator
            held = self._holders(self._stated)
            if not any(holder.is_told for holder in held):
                held += self._exact("fit", X)
            plain = Z
            changes, self._carried, Z = self._all_carried(X, Z, held, self._stated)
            self.moves_rows_ = Z is not plain and not np.array_equal(Z, plain)
            if not takes(final.fit, set(self._carried)):
                raise ValueError(
                    f"{NAME}.fit: the steps make {', '.join(sorted(self._carried))} of what is stated, which the last step, "
                    f"{final!r:.80}, does not take. Use steps that mix no features, such as scalers, or another last step."
                )
            self._changed = {name: value for name, value in final.get_params().items() if name in changes}
            final.set_params(**changes)
        return Z

    def _get_metadata_for_step(self, *, step_idx: int, **options: Any) -> Any:
        found = super()._get_metadata_for_step(step_idx=step_idx, **options)
        if step_idx < len(self.steps) - 1 or "_carried" not in self.__dict__:
            return found
        return {**found, "fit": {**found["fit"], **self._carried}}

    def _holders(self, stated: Mapping[str, Any]) -> list[StatedSet]:
        """Return the sets of the last step, and what metadata mean to those in it that hold none."""
        found, names = holders(self._final_estimator), set(stated)
        alone = estimators_taking(self._final_estimator, names) if names else []
        if alone:
            found.append(StatedSet("", meaning(names), True, alone[0]))
        return found

    def _refuse_untaken(self, stated: Mapping[str, Any]) -> None:
        """Raise where nothing in the last step takes what is stated at `fit`."""
        final, names = self._final_estimator, set(stated)
        is_taken = hasattr(final, "fit") and takes(final.fit, names)
        if names and not (is_taken and any(holder.is_told for holder in self._holders(stated))):
            raise ValueError(
                f"{NAME}.fit: the last step, {final!r:.80}, takes no {', '.join(sorted(names))} at fit, nor does anything in "
                "it. Let it be one that does: GaussianRobustClassifier for noise, RobustLinearClassifier for sets, or "
                "NoiseCopies(estimator) for any other. ModeratedClassifier(estimator) takes noise at predict_proba only, and "
                "`carried` says what transformers make of it: fit these without."
            )

    def _exact(self, method: str, X: Any) -> list[StatedSet]:
        """Return sets without extent for a last step that holds none, where steps add errors to the rows X; else nothing.

        Raises where it has no use for errors at all.
        """
        final = self._final_estimator
        if not predicts(final):
            return []
        if not self._adds_errors(method, X):
            # one that draws from errors cannot do without, and steps that may add some say that there are none
            is_drawn = method == "fit" and draws_errors(final) and may_add_errors(step for _, step in self.steps[:-1])
            return exact_rows(final) if is_drawn and any(effect.adds_errors for effect in self._effects(X)) else []
        found, is_fit = exact_rows(final), method == "fit"
        own = [holder for holder in found if is_fit or (holder.path and "__" not in holder.path)]
        if own:
            return own
        if not is_fit and takes_by_name(final, method, "X_std"):
            noises = [one.uncertainty.at_prediction() for one in holders(final) if one.uncertainty.is_expectation]
            return [StatedSet("", noises[0] if noises else GaussianNoise(0.0), True, type(final).__name__)]
        # one that moderates probabilities is told of the errors there
        if found or holders(final) or takes_by_name(final, "predict_proba", "X_std"):
            return []
        raise ValueError(
            f"{NAME}.{method}: the steps fill in entries that have errors, as SpreadImputer says, and the last step, "
            f"{final!r:.80}, takes none. Let it be one that does: RobustLinearClassifier for the worst of them, "
            "GaussianRobustClassifier or NoiseCopies(estimator) for their average, ModeratedClassifier(estimator) for "
            "probabilities; or use SimpleImputer, after which they count as exact."
        )

    def _adds_errors(self, method: str, X: Any) -> bool:
        """Return whether the steps give errors to the rows X."""
        steps = self.steps[:-1]
        is_plain = method in PLAIN and not may_add_errors(step for _, step in steps)
        return not is_plain and added(X, steps, self._effects(X))

    def _all_carried(
        self, X: Any, Z: Any, held: Sequence[StatedSet], stated: Mapping[str, Any]
    ) -> tuple[dict[str, UncertaintySet], dict[str, Any], Any]:
        """Return the sets that go in the place of those held, by their parameters, all metadata, and the rows."""
        changes, found, rows = {}, [], Z
        for holder in held:
            made, own, rows = self._carry(X, Z, holder, stated)
            if not holder.is_told and own:
                if not any(np.any(dense(value)) for value in own.values()):  # nothing is stated there
                    continue
                raise ValueError(
                    f"{NAME}: the steps make {', '.join(sorted(own))} of {holder.uncertainty!r}, which does not reach "
                    f"{holder.owner} inside {type(self._final_estimator).__name__}. State it there instead: "
                    "NoiseCopies(estimator, uncertainty=...)."
                )
            if not holder.is_fixed:
                changes[holder.path] = made
            elif made != (holder.uncertainty if holder.path else meaning(set(own))):
                raise ValueError(_cannot_take(holder, made, own))
            found += [own] if holder.is_told else []
        metadata = found[0] if found else {}
        if any(not _are_same(metadata, other) for other in found[1:]):
            raise ValueError(
                f"{NAME}: {' and '.join(holder.owner for holder in held)} would be told different things by the same metadata, "
                "as their sets are carried differently. Use one pipeline for each."
            )
        return changes, metadata, rows

    def _carry(self, X: Any, Z: Any, holder: StatedSet, stated: Mapping[str, Any]) -> Carried:
        told = stated if holder.is_told else {}
        steps, effects = self.steps[:-1], self._effects(X)
        return carry(holder.uncertainty, told, X, Z, steps, effects, self.nonlinear, with_own=holder.is_told)

    def _stated_of(self, X: Any, metadata: Mapping[str, Any], call: str) -> dict[str, Any]:
        """Return what is stated of rows whose columns are those of `fit`."""
        known = getattr(self, "columns_in_", None)
        if known is not None and hasattr(X, "columns") and list(X.columns) != known:
            raise ValueError(
                f"{call}: X has other columns than in fit, or in another order. Errors are carried by their position: give "
                f"X[columns] with the columns of fit, {known!r:.120}."
            )
        return checked_metadata(X, metadata, call, self)

    def _effects(self, X: Any, *, with_final: bool = False) -> Any:
        steps = self.steps if with_final else self.steps[:-1]
        self._check_settings()
        return effects_of(steps, X, self.effects or {})

    def carried(
        self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Any
    ) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return what the transformers of a fitted pipeline make of a set and of metadata of the rows X.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        uncertainty : UncertaintySet, default=None
            In the units of X. None: what the metadata state, X_std being deviations of noise; without any, what the steps add
            to exact rows, as noise.
        **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius

        Returns
        -------
        (UncertaintySet, dict)
            For the rows that the transformers make of X, those before a last step that predicts; what
            :func:`critical_radius` and the like take with these rows.
        """
        stated = self._stated_of(X, metadata, f"{NAME}.carried")
        nothing = meaning(set(stated)) if stated else GaussianNoise(0.0)
        chosen = nothing if uncertainty is None else uncertainty
        chosen.split(known_numbers(X), stated)
        is_last = not hasattr(self._final_estimator, "predict")
        steps = self.steps if is_last else self.steps[:-1]
        Z = transformed(steps, X)
        made = carry(chosen, stated, X, Z, steps, self._effects(X, with_final=is_last), self.nonlinear)
        return made.uncertainty, made.metadata

    def _asked(self, method: str, X: Any, metadata: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
        """Return what the last step says of rows whose uncertainty is stated in the units of X."""
        check_is_fitted(self)
        self._warn_of_zeros(X)
        final = self._final_estimator
        averages = takes_by_name(final, method, "X_std")
        if method in PROBABILITIES and not averages and may_average(one for _, one in self.steps[:-1]):
            return self._predicted(method, X, metadata, params)
        stated = self._stated_of(X, metadata, f"{NAME}.{method}")
        self._refuse_unasked(method, stated)
        Z = transformed(self.steps[:-1], X)
        if method in PROBABILITIES and not averages:
            self._warn_of_plain(method, X)
        # the last step says what it lacks; one that only moderates is told of what steps add
        if self.row_uncertainty_ and not stated and (hasattr(final, "row_noise_") or not averages):
            return getattr(final, method)(Z, **params)
        own = self._own_as_stated(known_numbers(X), stated) or self._exact(method, X)
        changes, carried, Z = self._all_carried(X, Z, own, stated)
        asked = copy(final).set_params(**changes)
        # whether imputers filled in entries here, not whether they did in training
        asked.row_uncertainty_ = asked.row_noise_ = bool(carried)
        question = getattr(asked, method)
        if stated:
            self._refuse_unasked(method, carried)
        # plain probabilities take no errors, whatever those of the constructor have become
        return question(Z, **(carried if stated or takes(question, set(carried)) else {}), **params)

    def _predicted(self, method: str, X: Any, metadata: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
        """Return what the last step predicts of rows whose errors are stated in the units of X, or of exact rows."""
        check_is_fitted(self)
        final = self._final_estimator
        if takes_by_name(final, method, "X_std"):
            return self._asked(method, X, metadata, params)
        self._warn_of_zeros(X)
        stated = self._stated_of(X, metadata, f"{NAME}.{method}")
        is_moved = getattr(self, "moves_rows_", False)
        if not stated and not (is_moved and not self.row_uncertainty_):
            if is_moved:
                warn_caller(
                    f"{NAME}.{method}: steps of this pipeline averaged over the errors of the rows in fit, and are told of "
                    f"none here, so rows count as exact. Pass X_std, X_cov or X_factor (zeros for exact rows). {ROUTING}",
                    UserWarning,
                )
            return getattr(super(), method)(X, **params)
        Z = transformed(self.steps[:-1], X)
        # without metadata the noise that the last step's constructor states
        held = [holder for holder in holders(final) if not holder.uncertainty.is_of_training]
        own = [StatedSet("", meaning(set(stated)), True, type(final).__name__)] if stated else held
        is_noise = all(holder.uncertainty.is_expectation for holder in holders(final))
        rows = self._all_carried(X, Z, own, stated)[2] if is_noise else Z
        if rows is Z:
            raise ValueError(
                f"{NAME}.{method}: {', '.join(sorted(stated))} would not change what the last step, {final!r:.80}, says: "
                "errors of a row do not move its score. Leave it out. predict_proba and flip_probability take it, where there "
                "are any. NoiseAwareClassifier as the last step averages over errors; ExpectedFeatures before one that is not "
                "trained for sets does too, with nonlinear='auto'."
            )
        return getattr(final, method)(rows, **params)

    def _warn_of_zeros(self, X: Any) -> None:
        """Warn where an encoder makes zeros of categories that are missing or unknown, which no row in training had."""
        if not may_lose_categories(step for _, step in self.steps[:-1]):
            return
        for (name, step), effect, Z in rows_before(self.steps[:-1], self._effects(X), X):
            lost = [one for one in effect.corners(Z) if np.any(one.unlikely)]
            if lost:
                n_rows = np.sum(np.any([one.rows for one in lost], axis=0))
                warn_caller(
                    f"{NAME}: step {name!r}, {type(step).__name__}, in {n_rows} of the rows: {UNLIKELY}", UserWarning
                )

    def _warn_of_plain(self, method: str, X: Any) -> None:
        """Warn where steps add errors to the rows X, over which the last step's probabilities are no averages."""
        self._exact(method, X)  # refuses one that takes no errors at all
        if self._adds_errors(method, X):
            warn_caller(
                f"{NAME}.{method}: the steps fill in entries that have errors, and the last step, "
                f"{self._final_estimator!r:.80}, does not average over them, so these are plain probabilities, which are too "
                "sure of such rows. Use ModeratedClassifier(estimator) or GaussianRobustClassifier(loss='logistic'), which "
                "average, as the last step, or SimpleImputer, after which what is filled in counts as exact.",
                UserWarning,
            )

    def _refuse_unasked(self, method: str, metadata: Mapping[str, Any]) -> None:
        """Raise where the last step's method takes no such metadata."""
        final = self._final_estimator
        if not takes(getattr(final, method), set(metadata)):
            raise ValueError(
                f"{NAME}.{method}: the last step, {final!r:.80}, is not asked with {', '.join(sorted(metadata))}, in its own "
                "units. GaussianRobustClassifier and ModeratedClassifier(estimator) take noise (X_std, X_cov, X_factor) for "
                "probabilities, RobustLinearClassifier takes sets for certify."
            )

    def _own_as_stated(self, values: Any, stated: Mapping[str, Any]) -> list[StatedSet]:
        """Return the sets that questions about rows go by, as stated by metadata where there are any."""
        final = self._final_estimator
        own = [holder for holder in holders(final) if "__" not in holder.path]
        if not stated:
            own = [holder for holder in own if not holder.uncertainty.is_of_training]
        if not own and stated:
            own = [StatedSet("", meaning(set(stated)), True, type(final).__name__)]
        if stated:
            own = [holder._replace(uncertainty=holder.uncertainty.as_stated(stated)) for holder in own]
        for holder in own:
            holder.uncertainty.split(values, stated)  # refuses what makes no sense
        return own

    @offered_if(_offered("score"))
    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_std: Any = None,
        X_cov: Any = None,
        X_factor: Any = None,
        X_lower: Any = None,
        X_upper: Any = None,
        X_radius: Any = None,
        **params: Any,
    ) -> Any:
        """Return what `score` of the last step says of the rows X, whose errors are stated in the units of X, as `predict`."""
        given = (X_std, X_cov, X_factor, X_lower, X_upper, X_radius)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._predicted("score", X, dict(zip(METADATA, given, strict=True)), {"y": y, **weights, **params})

    @offered_if(_offered("certify"))
    def certify(self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Any) -> Any:
        """Return for each row whether no admissible input, in the units of X, can change its prediction.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        uncertainty : UncertaintySet, default=None
            The sets; None: those of the last step's constructor.
        **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius
            As in `fit`, and as the last step takes them.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.certified_margin(X, uncertainty, **metadata) > 0

    @offered_if(_offered("certified_margin"))
    def certified_margin(self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Any) -> Any:
        """Return by how much each prediction leads at the worst admissible input, in the units of X.

        Rounding in affine steps is taken off; what it does in curved ones is not known. Takes sets as `certify` does.
        """
        view, sets = self._view_and_sets("certified_margin", X, uncertainty, metadata)
        return view.margins(sets)[1]

    def _view_and_sets(
        self, method: str, X: Any, uncertainty: UncertaintySet | None, metadata: Mapping[str, Any]
    ) -> tuple[View, RowSets]:
        """Return what certificates see of the pipeline at rows X, and the sets of these rows."""
        check_is_fitted(self)
        call, final = f"{NAME}.{method}", self._final_estimator
        stated = self._stated_of(X, known_metadata(metadata, call), call)
        self._check_settings()
        if uncertainty is None and self.row_uncertainty_ and not stated:
            getattr(final, method)(transformed(self.steps[:-1], X))  # which says what it lacks
        view = view_of(self, X)
        if any(effect.adds_errors for effect in view.passage.effects):
            # refuses what is filled in without saying how uncertain it is
            added(X, self.steps[:-1], self._effects(X))
        if uncertainty is not None:
            check_features(X, {"uncertainty": uncertainty}, self)
            chosen = uncertainty
        elif own := self._own_as_stated(known_numbers(X), stated):
            chosen = own[0].uncertainty
        else:  # of a last step without a set, which was told of errors in training at most
            plain = copy(final)
            plain.row_uncertainty_ = False
            chosen = plain._own_set(view.rows, stated, call)
        if chosen.is_of_rows and (map := self._map(X)) is not None:
            chosen = chosen.in_units_before(map)
        worst, cloud = view.sets(chosen, stated)
        if worst is None or cloud is not None:
            raise ValueError(
                f"{call}(uncertainty={chosen!r}): Gaussian noise has no bounds, so no prediction is certain. State a set, as "
                "certify(X, Box(0.1)) or certify(X, Box(), X_std=...)."
            )
        return view, worst

    def _map(self, X: Any) -> AffineMap | None:
        """Return the steps as an affine map of the rows, None where they are none."""
        return together(self.steps[:-1], self._effects(X), n_columns(X)).map

    def _with_gaps(self, method: str, X: Any, ends: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return rows and ranges of features in the units of the last step, which sees what is missing."""
        check_is_fitted(self)
        call = f"{NAME}.{method}"
        Z = transformed(self.steps[:-1], X)
        lost, left = (np.count_nonzero(np.isnan(dense(numbers_of(rows)))) for rows in (X, Z))
        if left < lost:
            raise ValueError(
                f"{call}: steps fill in missing entries before the last step, {self._final_estimator!r:.80}, which sees none. "
                "Ask holdfast.missing_report(pipe, X) what they may change; or leave out the imputer."
            )
        given = {name: value for name, value in ends.items() if value is not None}
        if not given:
            return Z, {}
        map, n = self._map(X), n_columns(X)
        if map is None or not map.is_monomial:
            raise ValueError(f"{call}({min(given)}=...): ranges of features pass through scalers and selectors only.")
        whole = {
            name: np.broadcast_to(np.asarray(value, dtype=np.float64), n)[map.sources] for name, value in given.items()
        }
        unknown = {"lower": -np.inf, "upper": np.inf}
        low, high = (whole.get(name, np.full(map.shape[0], inf)) for name, inf in unknown.items())
        with np.errstate(invalid="ignore"):
            moved = [np.where(map.scales == 0, 0.0, map.scales * end) + map.offset for end in (low, high)]
        return Z, {"lower": np.minimum(*moved), "upper": np.maximum(*moved)}

    @offered_if(_offered("score_interval"))
    def score_interval(self, X: Any, *, lower: Any = None, upper: Any = None) -> Any:
        """Return the least and the largest score of the last step over all values that missing entries may have.

        Parameters
        ----------
        X : {array-like, frame} of shape (n_samples, n_features)
            NaN is missing, and reaches the last step: through scalers, not through imputers.
        lower, upper : float or array-like of shape (n_features,), default=None
            The range of each feature, in the units of X; both None: that of the training rows.
        """
        Z, ends = self._with_gaps("score_interval", X, {"lower": lower, "upper": upper})
        return self._final_estimator.score_interval(Z, **ends)

    @offered_if(_offered("is_certain"))
    def is_certain(self, X: Any, *, lower: Any = None, upper: Any = None) -> Any:
        """Return whether a row's class is the same for all values that its missing entries may have, as the last step tells.

        Parameters
        ----------
        X, lower, upper
            As for `score_interval`.
        """
        Z, ends = self._with_gaps("is_certain", X, {"lower": lower, "upper": upper})
        return self._final_estimator.is_certain(Z, **ends)

    @offered_if(_offered("missing_report"))
    def missing_report(self, X: Any, *, lower: Any = None, upper: Any = None) -> Any:
        """Return what is missing in which rows, and which predictions do not depend on it, as the last step tells.

        :func:`holdfast.missing_report` says of any model which entry to measure next.

        Parameters
        ----------
        X, lower, upper
            As for `score_interval`.
        """
        Z, ends = self._with_gaps("missing_report", X, {"lower": lower, "upper": upper})
        return self._final_estimator.missing_report(Z, **ends)

    @offered_if(_offered("worst_case_data"))
    def worst_case_data(self, X: Any, y: Any, **metadata: Any) -> Any:
        """Return the admissible rows, in the units of X, that hurt the model the most, as the last step's method does.

        Only where all steps before it are affine maps, or encode categories, which have no errors. An array; where X has
        entries that are no numbers, in the form of X, with these as given.
        """
        view, sets = self._view_and_sets("worst_case_data", X, None, metadata)
        if view.is_curved or view.slack is not None:
            raise ValueError(
                f"{NAME}.worst_case_data: only where all steps before the last are affine maps. Ask "
                "pipe[-1].worst_case_data(pipe[:-1].transform(X), y, ...) for rows in its own units."
            )
        codes = self._final_estimator._codes(y, view.rows.shape[0])
        return with_numbers(X, dense(view.numbers) + view.worst_moves(sets, codes)[0])


def _refitting(method: str) -> Any:
    """Return a method of Pipeline that fits, made to leave the pipeline unfitted where it fails."""

    def fit_and_ask(self: UncertainPipeline, X: Any, y: Any = None, **params: Any) -> Any:
        _refuse_by_step(params, f"{NAME}.{method}")
        with self._refitted():
            return getattr(super(UncertainPipeline, self), method)(X, y, **params)

    fit_and_ask.__name__, fit_and_ask.__qualname__ = method, f"{NAME}.{method}"
    fit_and_ask.__doc__ = f"""Fit the steps, and return what `{method}` of the plain Pipeline does."""
    return available_if(lambda self: getattr(super(UncertainPipeline, self), method) is not None)(fit_and_ask)


def _question(method: str, ask_by: Callable[..., Any]) -> Any:
    """Return the method of the pipeline that asks the last step's."""

    def ask(
        self: UncertainPipeline,
        X: Any,
        *,
        X_std: Any = None,
        X_cov: Any = None,
        X_factor: Any = None,
        X_lower: Any = None,
        X_upper: Any = None,
        X_radius: Any = None,
        **params: Any,
    ) -> Any:
        given = (X_std, X_cov, X_factor, X_lower, X_upper, X_radius)
        return ask_by(self, method, X, dict(zip(METADATA, given, strict=True)), params)

    ask.__name__, ask.__qualname__ = method, f"{NAME}.{method}"
    ask.__doc__ = f"""Return what `{method}` of the last step says of the rows X, whose errors are stated in the units of X.

        Parameters
        ----------
        X : {{array-like, sparse matrix, frame}} of shape (n_samples, n_features)
        X_std, X_cov, X_factor, X_lower, X_upper, X_radius : array-like, default=None
            As in `fit`, and as the last step takes them. Without them the sets of its constructor are meant.
        """
    return offered_if(_offered(method))(ask)


for _method in ("predict_proba", "predict_log_proba", "flip_probability", "score_std"):
    setattr(UncertainPipeline, _method, _question(_method, UncertainPipeline._asked))

for _method in ("predict", "decision_function"):
    setattr(UncertainPipeline, _method, _question(_method, UncertainPipeline._predicted))


for _method in ("fit_transform", "fit_predict"):
    setattr(UncertainPipeline, _method, _refitting(_method))


def make_uncertain_pipeline(
    *steps: Any,
    transform_input: Any = None,
    memory: Any = None,
    verbose: bool = False,
    nonlinear: str = "auto",
    effects: Mapping[str, str] | None = None,
) -> UncertainPipeline:
    """Return an :class:`UncertainPipeline` of steps that are named after their classes.

    Examples
    --------
    >>> from holdfast import Ball, RobustLinearClassifier, make_uncertain_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> make_uncertain_pipeline(StandardScaler(), RobustLinearClassifier(Ball(0.3))).named_steps.robustlinearclassifier
    RobustLinearClassifier(uncertainty=Ball(radius=0.3))
    """
    return UncertainPipeline(
        make_pipeline(*steps).steps,
        transform_input=transform_input,
        memory=memory,
        verbose=verbose,
        nonlinear=nonlinear,
        effects=effects,
    )


def _refuse_by_step(params: Mapping[str, Any], call: str) -> None:
    """Raise where errors of rows are given to one step, which would take them in its own units."""
    for path in params:
        step, _, name = path.rpartition("__")
        if step and name in METADATA:
            raise ValueError(
                f"{call}({path}=...): {step!r} would take it in its own units. Pass {name}=... to the pipeline's fit, in the "
                "units of X: the steps carry it."
            )


def _are_pairs(steps: Any) -> bool:
    """Return whether these are names and steps."""
    is_list = isinstance(steps, list | tuple) and len(steps) > 0
    return is_list and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in steps)


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return set(one) == set(other) and all(np.array_equal(dense(one[name]), dense(other[name])) for name in one)


def _cannot_take(holder: StatedSet, made: UncertaintySet, carried: Mapping[str, Any]) -> str:
    if holder.path:
        return (
            f"{NAME}: {holder.owner} states {holder.uncertainty!r} by plain numbers, and the steps make something else of it. "
            "Use steps that keep it (scalers that neither shift nor stretch: MaxAbsScaler for deletions, PCA for a ball), or "
            "RobustLinearClassifier, which takes any set."
        )
    return (
        f"{NAME}: {holder.owner} takes {', '.join(sorted(carried))}, and the steps make {made!r} of it, which no metadata "
        "can state. Use a last step that holds a set, such as RobustLinearClassifier(IntervalBox())."
    )
