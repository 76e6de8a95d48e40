"""A scikit-learn Pipeline that carries uncertainty through its steps to a classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metaestimators import available_if

from holdfast._core.allowed import arguments
from holdfast._core.metadata import METADATA, NOTHING_STATED, SetsByRow, takes_metadata
from holdfast._core.offers import offered_if
from holdfast._core.uncertainty import UncertaintySet
from holdfast.estimators.linear import ELSEWHERE
from holdfast.estimators.units import units_looked_at, warn_of_units
from holdfast.features.rows import check_params, checked_metadata, known_numbers, numbers_of
from holdfast.features.steps import may_average
from holdfast.pipeline.carried_rows import PREDICTIONS, CarriedRows
from holdfast.pipeline.certificates import of_gaps, view_and_sets, worst_rows
from holdfast.pipeline.handover import Handover
from holdfast.pipeline.predictions import Question, answer, prediction
from holdfast.pipeline.settings import NAME, check_settings, refuse_by_step
from holdfast.pipeline.stated_sets import meaning, takes_by_name
from holdfast.uncertainty import GaussianNoise


def _offered(method: str) -> Callable[[UncertainPipeline], bool]:
    """Return a check that the last step has a method; if not, it raises with the step's own message."""

    def check(pipeline: UncertainPipeline) -> bool:
        try:
            getattr(pipeline._final_estimator, method)
        except AttributeError as error:
            hint = f" {ELSEWHERE[method]}." if method in ELSEWHERE else ""
            raise AttributeError(f"{NAME} has no {method}, as its last step has none: {error}.{hint}") from error
        return True

    return check


class UncertainPipeline(Pipeline):
    r"""A Pipeline that transforms the errors of rows along with the rows, at fit and at prediction.

    Sets in the constructor of the last step (``Ball(0.3)``, ``GaussianNoise(cov=C)``, ...) and metadata (``X_std``, ...) are
    stated in the units of X, the rows given to the pipeline. Each step changes them, and the last step works with the result:

    ===============================================  ==================================================================
    step                                             uncertainty after it
    ===============================================  ==================================================================
    StandardScaler, MinMaxScaler, MaxAbsScaler,      exact, for all sets: z = A x + c has the errors A d. Per-row
    RobustScaler, PCA, IncrementalPCA, FastICA,      deviations stay deviations where features are not mixed, and
    TruncatedSVD, random projections, selectors,     become covariances where they are; then a box becomes a zonotope, a
    "passthrough"                                    ball an ellipsoid. Deletions pass only where features are not mixed
    PowerTransformer, QuantileTransformer,           boxes: exact, by their end points. Other sets: by the smallest box
    MinMaxScaler(clip=True), log, sqrt, exp, ... in  around them, an outer approximation. Noise: by its moments,
    a FunctionTransformer                            integrals of the step; by the derivative where one deviation
                                                     leaves its domain. ``"linearise"``: noise and ellipsoids by the
                                                     slope of the secant over one deviation to each side, an
                                                     approximation
    PolynomialFeatures                               sets: exact bounds of each product, an outer approximation of all
                                                     together. Noise: by moments, without products of errors of
                                                     different features; ``"linearise"``: by derivatives
    ConditionalImputer                               noise: exact; errors of known entries carry over to fill-ins, plus
                                                     the conditional covariance of the fill-ins. Sets: intervals
    CategoryEncoder                                  its inputs have no error; a missing category may be any category
    SpreadImputer                                    exact, plus the spread of the column for entries that are filled
                                                     in; refused for noise, if several branches fill in the same entry
    SimpleImputer                                    exact, if nothing is missing
    OneHotEncoder, OrdinalEncoder                    their inputs must have no error; for certificates, a category that
                                                     OneHotEncoder turns into zeros may be any category
    ColumnTransformer, FeatureUnion, Pipeline        as the steps inside. Affine steps beside one that is not affine are
                                                     carried by boxes or deviations too
    FunctionTransformer, any other step              as `effects` or :func:`teach_step` say; an error otherwise
    ===============================================  ==================================================================

    The pipeline never changes parameters of the last step, so ``get_params`` and a search over ``clf__uncertainty__radius`` are
    in the units of X. `fit` trains a copy of the last step that holds the carried sets, and gives its fitted attributes to the
    last step. These, such as ``pipe[-1].coef_``, are in the units of the transformed rows: ask the pipeline, not
    ``pipe[-1]``, for certificates. A fitted pipeline may be asked from several threads at once.

    Steps may add errors of their own, as SpreadImputer does for entries that it fills in. These errors also reach a
    last step without a set: as intervals if it is ``RobustLinearClassifier(None)``, as noise if its `fit` takes
    ``X_std``. A last step that takes neither is refused if entries are missing. ModeratedClassifier gets these errors
    in `predict_proba`. Other last steps that were trained with them, but do not average probabilities over them, warn
    in `predict_proba`. Put a search over sets around the pipeline, not in its last step.

    `predict`, `decision_function` and `score` take metadata if predictions depend on errors: if the last step takes the
    metadata, as NoiseAwareClassifier does, or if steps average over errors, as ExpectedFeatures does. Otherwise these
    methods and `transform` are those of the plain Pipeline. `predict_proba`, `flip_probability`, `score_std`, `certify`
    and `certified_margin` exist if the last step has them, and take the same metadata as it does. `worst_case_data`
    returns rows in the units of X. Certificates allow for rounding in affine steps, but not in other steps.

    With metadata routing enabled, searches, ``CalibratedClassifierCV`` and the like pass metadata to a pipeline inside
    them without a request. So does ``StackingClassifier``, but it passes them to its final estimator too, whatever that
    estimator requests, along with predictions instead of the rows. That raises even if the final estimator takes
    ``X_std``, as the columns of the predictions are not those of X. Use a final estimator that ignores ``X_std``::

        class Final(LogisticRegression):
            def fit(self, X, y, X_std=None):
                return super().fit(X, y)

    or pass fitted pipelines with ``cv="prefit"``.

    Parameters
    ----------
    steps : list of (str, estimator)
    transform_input : list of str, default=None
        As for Pipeline. Do not list ``X_std`` and the other metadata, which are carried anyway.
    memory : str or joblib.Memory, default=None
    verbose : bool, default=False
    nonlinear : {"auto", "interval", "linearise", "raise"}, default="auto"
        How errors are carried through a step f that is not an affine map. "auto": sets by intervals; noise by the root
        mean square of :math:`f(x + \delta) - f(x)`, which becomes its standard deviation. Rows stay at f(x), where
        predictions are made, so the distance from f(x) to the mean of :math:`f(x + \delta)` counts as error.
        "interval": as "auto" for sets; noise is refused. "linearise": noise and ellipsoids to first order, boxes by
        intervals. "raise": both are refused.
    effects : dict from str to {"linear", "monotone"}, default=None
        The effects of steps whose class is not known, or that differ from their class, by the step's name
        (``outer__inner`` for a step inside another): "linear" for z = A x + c, "monotone" for functions of single
        features that only rise or only fall. Each claim is tested at the rows and at points near them, which finds most
        mistakes but proves nothing.

    Attributes
    ----------
    row_uncertainty_ : bool
        Whether `fit` was given metadata; certificates then need them too.
    moves_rows_ : bool
        Whether steps averaged over errors in `fit`, as ExpectedFeatures does; predictions without errors then warn.
    columns_in_ : list of str or None
        The columns of the frame given to `fit`; certificates need the same columns in the same order.

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
        kept = ["row_uncertainty_", "moves_rows_", "_is_broken"]
        if ind.indices(len(self.steps))[0] == 0:  # a slice from a later step takes rows with other columns
            kept.append("columns_in_")
        found.__dict__ |= {name: vars(self)[name] for name in kept if name in vars(self)}
        effects = {
            path: said for path, said in (self.effects or {}).items() if path.split("__")[0] in found.named_steps
        }
        return found.set_params(nonlinear=self.nonlinear, effects=effects or None)

    def get_metadata_routing(self) -> Any:
        """Return the metadata that the pipeline takes itself, and those that its steps request."""
        own = self._get_metadata_request()
        for method in PREDICTIONS:
            for name in () if self._may_use_errors(method) else METADATA:
                getattr(own, method).add_request(param=name, alias=False)
        return super().get_metadata_routing().add_self_request(own)

    def _may_use_errors(self, method: str) -> bool:
        """Return whether errors may change a prediction: the last step takes them, or other steps average over them."""
        return takes_by_name(self._final_estimator, method, "X_std") or may_average(one for _, one in self.steps[:-1])

    @property
    def averages_errors(self) -> bool:
        """Whether predictions depend on errors of rows, and take them."""
        return self._may_use_errors("predict")

    @arguments()
    @takes_metadata
    def fit(self, X: Any, y: Any = None, *, metadata: SetsByRow = NOTHING_STATED, **params: Any) -> Self:
        """Fit the steps, the last one with the carried uncertainty, stated here or in its constructor.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        **metadata
            The errors of each row, in the units of X, as far as the last step takes them. Frames are matched to the
            columns of X by name.
        **params
            As for Pipeline: ``step__parameter``, or with metadata routing the names that steps request; not errors of
            rows.
        """
        refuse_by_step(params, f"{NAME}.fit")
        check_settings(self)
        stated = checked_metadata(X, metadata, f"{NAME}.fit")
        handover = Handover(self, X, stated)
        check_params(X, params)
        columns = list(X.columns) if hasattr(X, "columns") else None
        if stated:
            factor = max(holder.uncertainty.row_factor for holder in handover.told_sets)
            warn_of_units(numbers_of(X), stated, f"{NAME}.fit", factor=factor, columns=columns)
        # Pipeline.fit runs on a twin, whose last step is a substitute: the pipeline itself holds nothing of this fit
        twin = object.__new__(type(self))
        kept = {name: value for name, value in vars(self).items() if name != "_is_broken"}
        twin.__dict__ = {**kept, "steps": list(self.steps), "_handover": handover}
        with self._refitted():
            with units_looked_at(), handover.explained():
                super(UncertainPipeline, twin).fit(X, y, **params)
            handover.hand_back()
            self.steps = [*twin.steps[:-1], self.steps[-1]]  # with `memory`, Pipeline has fitted copies of transformers
            self.columns_in_, self.row_uncertainty_ = columns, bool(stated)
            self.moves_rows_ = handover.moves_rows
        return self

    @contextmanager
    def _refitted(self) -> Iterator[None]:
        """Mark the pipeline as broken unless the block ends without an error: steps are fitted in place, one by one."""
        self._is_broken = True
        yield
        del self._is_broken

    def __sklearn_is_fitted__(self) -> bool:
        if "_is_broken" in vars(self):
            raise NotFittedError(
                f"{NAME}: its last fit failed and left some steps fitted anew, others not. Call fit again."
            )
        return bool(super().__sklearn_is_fitted__())

    def _fit(self, X: Any, *args: Any, **options: Any) -> Any:
        """Fit the transformers; if this pipeline is the twin of a fit, substitute its last step too."""
        Z = super()._fit(X, *args, **options)
        handover = vars(self).get("_handover")
        return Z if handover is None else handover.take(self, Z)

    def _get_metadata_for_step(self, *, step_idx: int, **options: Any) -> Any:
        """Return the metadata for a step; the last step of a twin also gets the carried metadata in `fit`."""
        found = super()._get_metadata_for_step(step_idx=step_idx, **options)
        handover = vars(self).get("_handover")
        if handover is None or step_idx < len(self.steps) - 1:
            return found
        return {**found, "fit": {**found["fit"], **handover.told}}

    def _stated_of(self, X: Any, metadata: Mapping[str, Any], call: str) -> dict[str, Any]:
        """Return checked metadata of rows X, which must have the columns of `fit`."""
        known = getattr(self, "columns_in_", None)
        if known is not None and hasattr(X, "columns") and list(X.columns) != known:
            raise ValueError(
                f"{call}: X has other columns than in fit, or in another order. Errors are carried by their position: give "
                f"X[columns] with the columns of fit, {known!r:.120}."
            )
        return checked_metadata(X, metadata, call, self)

    def carried(
        self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Any
    ) -> tuple[UncertaintySet, dict[str, Any]]:
        """Return a set, and metadata of the rows X, after the transformers of a fitted pipeline.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        uncertainty : UncertaintySet, default=None
            In the units of X. None stands for the set that the metadata state, with X_std as standard deviations of
            noise; without metadata, for exact rows, to which steps may add noise.
        **metadata : X_std, X_cov, X_factor, X_lower, X_upper or X_radius

        Returns
        -------
        (UncertaintySet, dict)
            In the units of the transformed rows, the input of a last step that predicts. :func:`critical_radius` and
            the like take both, together with these rows.
        """
        stated = self._stated_of(X, metadata, f"{NAME}.carried")
        nothing = meaning(set(stated)) if stated else GaussianNoise(0.0)
        chosen = nothing if uncertainty is None else uncertainty
        chosen.split(known_numbers(X), stated)
        is_last = not hasattr(self._final_estimator, "predict")
        steps = self.steps if is_last else self.steps[:-1]
        made = CarriedRows(self, X, steps).carry(chosen, stated)
        return made.uncertainty, made.metadata

    @offered_if(_offered("score"))
    @takes_metadata
    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        metadata: SetsByRow = NOTHING_STATED,
        **params: Any,
    ) -> Any:
        """Return the last step's `score` on the rows X, whose errors are stated in the units of X, as for `predict`."""
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        rows, options = CarriedRows(self, X), {"y": y, **weights, **params}
        return prediction(Question(self, "score", rows, metadata, options, super()))

    @offered_if(_offered("certify"))
    def certify(self, X: Any, uncertainty: UncertaintySet | None = None, **metadata: Any) -> Any:
        """Return for each row whether no admissible input, in the units of X, can change its prediction.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
        uncertainty : UncertaintySet, default=None
            The sets. None stands for those of the last step's constructor.
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

        The margin allows for rounding in affine steps, but not in other steps. Sets are stated as for `certify`.
        """
        view, sets = view_and_sets(self, "certified_margin", X, uncertainty, metadata)
        return view.margins(sets)[1]

    @offered_if(_offered("score_interval"))
    def score_interval(self, X: Any, *, lower: Any = None, upper: Any = None) -> Any:
        """Return the smallest and the largest score of the last step over all values that missing entries may have.

        Parameters
        ----------
        X : {array-like, frame} of shape (n_samples, n_features)
            NaN marks a missing entry. It must reach the last step: scalers pass it on, imputers do not.
        lower, upper : float or array-like of shape (n_features,), default=None
            The range of each feature, in the units of X. If both are None, the range of the training rows.
        """
        return of_gaps(self, "score_interval", X, {"lower": lower, "upper": upper})

    @offered_if(_offered("is_certain"))
    def is_certain(self, X: Any, *, lower: Any = None, upper: Any = None) -> Any:
        """Return whether a row's class is the same for all values that its missing entries may have.

        Parameters
        ----------
        X, lower, upper
            As for `score_interval`.
        """
        return of_gaps(self, "is_certain", X, {"lower": lower, "upper": upper})

    @offered_if(_offered("missing_report"))
    def missing_report(self, X: Any, *, lower: Any = None, upper: Any = None) -> Any:
        """Return which entries are missing, and which predictions do not depend on them.

        For any model, :func:`holdfast.missing_report` also says which entry to measure next.

        Parameters
        ----------
        X, lower, upper
            As for `score_interval`.
        """
        return of_gaps(self, "missing_report", X, {"lower": lower, "upper": upper})

    @offered_if(_offered("worst_case_data"))
    def worst_case_data(self, X: Any, y: Any, **metadata: Any) -> Any:
        """Return the admissible rows, in the units of X, at which the model does worst.

        Only for pipelines whose steps before the last are affine maps, or encode categories, which have no errors.
        Returns an array; if X has entries that are not numbers, a table like X with these entries unchanged.
        """
        return worst_rows(self, X, y, metadata)


def _refitting(method: str) -> Any:
    """Return a method of Pipeline that fits; if it fails, the pipeline is marked as unfitted."""

    def fit_and_ask(self: UncertainPipeline, X: Any, y: Any = None, **params: Any) -> Any:
        refuse_by_step(params, f"{NAME}.{method}")
        with self._refitted():
            return getattr(super(UncertainPipeline, self), method)(X, y, **params)

    fit_and_ask.__name__, fit_and_ask.__qualname__ = method, f"{NAME}.{method}"
    fit_and_ask.__doc__ = f"""Fit the steps, and return what `{method}` of the plain Pipeline does."""
    return available_if(lambda self: getattr(super(UncertainPipeline, self), method) is not None)(fit_and_ask)


def _question(method: str, ask_by: Callable[..., Any]) -> Any:
    """Return a method of the pipeline that passes its transformed rows to the last step's method."""

    def ask(self: UncertainPipeline, X: Any, *, metadata: SetsByRow = NOTHING_STATED, **params: Any) -> Any:
        return ask_by(Question(self, method, CarriedRows(self, X), metadata, params, super(UncertainPipeline, self)))

    ask.__name__, ask.__qualname__ = method, f"{NAME}.{method}"
    ask.__doc__ = f"""Return the last step's `{method}` of the rows X, whose errors are stated in the units of X.

        Parameters
        ----------
        X : {{array-like, sparse matrix, frame}} of shape (n_samples, n_features)
        **metadata
            As in `fit`, if the last step takes them. Without them, the sets of its constructor hold.
        """
    return offered_if(_offered(method))(takes_metadata(ask))


for _method in ("predict_proba", "predict_log_proba", "flip_probability", "score_std"):
    setattr(UncertainPipeline, _method, _question(_method, answer))

for _method in ("predict", "decision_function"):
    setattr(UncertainPipeline, _method, _question(_method, prediction))


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
