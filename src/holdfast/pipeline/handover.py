"""What a pipeline hands to its last step in one fit, without changing that step's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from holdfast._core.labels import check_features
from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.rows import known_numbers, numbers_of
from holdfast.pipeline.carried_rows import CarriedRows
from holdfast.pipeline.settings import NAME
from holdfast.pipeline.stated_sets import StatedSet, held_sets, takes


class Substitute:
    """A copy of an estimator that holds other sets; the estimator itself and the estimators inside it stay as they are.

    Parameters
    ----------
    original : estimator
        Fitted or not. The copy has its fitted attributes too, so it can start warm and predict.
    sets : dict from str to UncertaintySet
        The new sets, by the names of the parameters: ``inner__uncertainty`` for an estimator inside it, which is copied
        too.
    """

    def __init__(self, original: Any, sets: Mapping[str, UncertaintySet]):
        self.original, self.copy = original, object.__new__(type(original))
        self.copy.__dict__ = dict(vars(original))
        by_name: dict[str, dict[str, UncertaintySet]] = {}
        for path, made in sets.items():
            name, _, inner = path.partition("__")
            by_name.setdefault(name, {})[inner] = made
        params = original.get_params(deep=True) if by_name else {}
        # a path without "__" names a parameter of this estimator, not of one inside it
        self.inside = {name: Substitute(params[name], own) for name, own in by_name.items() if "" not in own}
        own = {name: made[""] for name, made in by_name.items() if "" in made}
        self.copy.set_params(**own, **{name: one.copy for name, one in self.inside.items()})

    def hand_back(self) -> None:
        """Give the estimator all that the copy has learned in `fit`; the estimator keeps its own parameters."""
        names = set(self.original.get_params(deep=False))
        params = {name: value for name, value in vars(self.original).items() if name in names}
        self.original.__dict__ = {**vars(self.copy), **params}  # one assignment: an interruption leaves all or nothing
        for one in self.inside.values():
            one.hand_back()


class Handover:
    """What one fit of a pipeline hands to its last step: rows, metadata, and sets that replace its own.

    It belongs to this fit, not to the pipeline, so fits and predictions in other threads see nothing of it.

    Parameters
    ----------
    pipeline : UncertainPipeline
    X : {array-like, sparse matrix, frame} of shape (n_samples, n_features)
    stated : dict
        Checked metadata, in the units of X.
    """

    def __init__(self, pipeline: Any, X: Any, stated: Mapping[str, Any]):
        self.X, self.stated, self.final = X, stated, pipeline._final_estimator
        self.told: dict[str, Any] = {}
        self.moves_rows = False
        self.substitute: Substitute | None = None
        is_fitted = hasattr(self.final, "fit")
        self.held = held_sets(self.final, set(stated)) if is_fitted else []
        self._refuse_untaken(is_fitted)
        for holder in self.held:
            check_features(X, {holder.owner: holder.uncertainty})
            # refuses metadata that make no sense before anything is fitted
            told = holder.uncertainty.learned_from(numbers_of(X))
            told.split(known_numbers(X), stated if holder.is_told else {})

    @property
    def told_sets(self) -> list[StatedSet]:
        """The held sets whose estimators get the metadata of the rows."""
        return [holder for holder in self.held if holder.is_told]

    def _refuse_untaken(self, is_fitted: bool) -> None:
        """Raise if no estimator in the last step takes the metadata given to `fit`."""
        names = set(self.stated)
        if names and not (is_fitted and takes(self.final.fit, names) and self.told_sets):
            raise ValueError(
                f"{NAME}.fit: the last step, {self.final!r:.80}, takes no {', '.join(sorted(names))} in fit, nor does "
                "any estimator in it. Use one that does: GaussianRobustClassifier for noise, RobustLinearClassifier "
                "for sets, or NoiseCopies(estimator) around any other. Fit ModeratedClassifier(estimator), which "
                "takes noise in predict_proba only, and pipelines for `carried`, without these."
            )

    def take(self, fitting: Any, Z: Any) -> Any:
        """Substitute the last step of a pipeline whose transformers are fitted, and return the rows for the substitute.

        Parameters
        ----------
        fitting : UncertainPipeline
            The twin that is fitted instead of the user's pipeline.
        Z : {array, sparse matrix, frame}
            The transformed rows.
        """
        if not hasattr(self.final, "fit"):
            return Z
        rows = CarriedRows(fitting, self.X)
        rows.after = Z
        held = self.held if self.told_sets else self.held + rows.exact_sets("fit")
        inputs = rows.last_inputs(held, self.stated)
        self.told = inputs.metadata
        self.moves_rows = inputs.rows is not Z and not np.array_equal(inputs.rows, Z)
        if not takes(self.final.fit, set(self.told)):
            raise ValueError(
                f"{NAME}.fit: the steps make {', '.join(sorted(self.told))} of what is stated, which the last step, "
                f"{self.final!r:.80}, does not take. Use steps that mix no features, such as scalers, or another last step."
            )
        if inputs.sets:
            self.substitute = Substitute(self.final, inputs.sets)
            fitting.steps[-1] = (fitting.steps[-1][0], self.substitute.copy)
        return inputs.rows

    def hand_back(self) -> None:
        """Give what the substitute has learned to the user's last step."""
        if self.substitute is not None:
            self.substitute.hand_back()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Explain the error of a last step that cannot hand its metadata on because metadata routing is off."""
        try:
            yield
        except ValueError as error:
            names = sorted(self.told)
            if not names or "enable_metadata_routing=True" not in str(error):
                raise
            raise ValueError(
                f"{NAME}.fit: the last step, {self.final!r:.80}, must hand {', '.join(names)} (the errors of the rows "
                "and of fill-ins, in its units) on to the estimators inside it, and it does so with metadata routing "
                "only. Call sklearn.set_config(enable_metadata_routing=True), and "
                f"set_fit_request({'=True, '.join(names)}=True) of those estimators."
            ) from error
