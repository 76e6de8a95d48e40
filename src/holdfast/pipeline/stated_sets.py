"""The sets that an estimator, and estimators inside it, were given in their constructors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from holdfast._core.uncertainty import UncertaintySet
from holdfast.features.steps import may_add_errors
from holdfast.uncertainty import Ball, Box, GaussianNoise, IntervalBox


class StatedSet(NamedTuple):
    """A set that an estimator holds."""

    path: str
    """The name of its parameter, ``outer__inner`` if the estimator is inside another one."""
    uncertainty: UncertaintySet
    is_fixed: bool = False
    """Whether no other set can replace it, as it is stated by plain numbers."""
    owner: str = ""
    """The name of the estimator's class."""
    is_told: bool = True
    """Whether the estimator gets the metadata of the rows and the errors that steps add."""


def holders(estimator: Any) -> list[StatedSet]:
    """Return the sets that an estimator and the estimators inside it hold."""
    told = {path for path, _ in _told(estimator)}
    found = [
        holder._replace(is_told=path in told) for path, one in _estimators(estimator) for holder in _own(path, one)
    ]
    if found or (predicts(estimator) and may_add_errors([estimator])):
        _refuse_pipelines(estimator)
    _refuse_searches(estimator, found)
    return found


def held_sets(estimator: Any, names: set[str]) -> list[StatedSet]:
    """Return the sets that an estimator holds, and the one that these metadata state for estimators without a set."""
    found = holders(estimator)
    alone = estimators_taking(estimator, names) if names else []
    return [*found, StatedSet("", meaning(names), True, alone[0])] if alone else found


def own_set(estimator: Any) -> StatedSet | None:
    """Return the set that an estimator holds itself, None if it holds none."""
    return next(iter(_own("", estimator)), None)


def exact_rows(estimator: Any) -> list[StatedSet]:
    """Return sets of size 0, to which errors can be added, for an estimator and those inside it that hold no set.

    An estimator with `exact_uncertainty` names the parameter and its set. If there is none, the set is one that the
    metadata of a `fit` can state: noise for ``X_std``, a box for ``X_lower``.
    """
    found = [
        StatedSet(path + name, uncertainty, False, type(one).__name__)
        for path, one in _told(estimator)
        if hasattr(one, "exact_uncertainty") and not _own(path, one)
        for name, uncertainty in [one.exact_uncertainty()]
    ]
    if found:
        return found
    for name, uncertainty in (("X_std", GaussianNoise(0.0)), ("X_lower", Box(0.0))):
        for path, one in _told(estimator):
            if takes_by_name(one, "fit", name) and not _own(path, one) and not _carries(one):
                return [StatedSet("", uncertainty, True, type(one).__name__)]
    return []


def draws_errors(estimator: Any) -> bool:
    """Return whether an estimator, or one inside it, draws from errors of rows and holds no set that states them."""
    return any(_draws(one) and not _own(path, one) for path, one in _told(estimator))


def _draws(estimator: Any) -> bool:
    return getattr(estimator, "draws_errors", False)


def _refuse_pipelines(estimator: Any) -> None:
    """Raise if a set in the units of an inner pipeline's input would be used in those of its last step."""
    if isinstance(estimator, Pipeline):
        raise ValueError(
            f"UncertainPipeline: its last step is a {type(estimator).__name__}. Make its steps steps of the outer one."
        )
    if any(isinstance(one, Pipeline) and not _carries(one) for _, one in _estimators(estimator)):
        raise ValueError(
            f"UncertainPipeline: inside {type(estimator).__name__} there is a plain Pipeline, which passes uncertainty on as "
            "it is. Use an UncertainPipeline there too."
        )


def _refuse_searches(estimator: Any, held: list[StatedSet]) -> None:
    """Raise if an inner search tries sets in the units of the pipeline's input: they would not be carried."""
    for path, one in _estimators(estimator):
        grids = getattr(one, "param_grid", getattr(one, "param_distributions", {}))
        names = {name for grid in ([grids] if isinstance(grids, Mapping) else grids) for name in grid}
        for name in sorted(names):
            tried = f"{path}estimator__{name}"
            if any(tried == holder.path or tried.startswith(f"{holder.path}__") for holder in held):
                raise ValueError(
                    f"UncertainPipeline: {type(one).__name__} inside it searches over {name!r}, which is in the units of what "
                    "the pipeline is given, and would be taken in those of the last step. Put the search around the pipeline."
                )


def _carries(estimator: Any) -> bool:
    return hasattr(estimator, "carried")


def estimators_taking(estimator: Any, names: set[str]) -> list[str]:
    """Return the class names of estimators whose `fit` takes some of these metadata, and that hold no set."""
    return [
        type(one).__name__
        for path, one in _told(estimator)
        if _is_taker(one, names) and not _own(path, one) and not _carries(one)
    ]


def _is_taker(estimator: Any, names: set[str]) -> bool:
    """Return whether the `fit` of an estimator uses some metadata itself, rather than handing them on."""
    is_alone = len(list(_estimators(estimator))) == 1
    return bool(names & set(inspect.signature(estimator.fit).parameters)) or (is_alone and takes(estimator.fit, names))


def meaning(names: set[str]) -> UncertaintySet:
    """Return the set that metadata of these names state by default."""
    if "X_radius" in names:
        return Ball()
    return IntervalBox() if names & {"X_lower", "X_upper"} else GaussianNoise()


def takes(method: Any, names: set[str]) -> bool:
    """Return whether a method takes all of these arguments."""
    found = inspect.signature(method).parameters
    return names <= set(found) or any(one.kind is one.VAR_KEYWORD for one in found.values())


def predicts(estimator: Any) -> bool:
    """Return whether an estimator predicts; stacks of others have no `predict` until fitted, but are classifiers."""
    return hasattr(estimator, "predict") or (hasattr(estimator, "fit") and is_classifier(estimator))


def takes_by_name(estimator: Any, method: str, name: str) -> bool:
    """Return whether an estimator's method has an argument of this name, and its parameters let it use the argument."""
    is_used = method == "fit" or getattr(estimator, "averages_errors", True)
    return is_used and hasattr(estimator, method) and name in inspect.signature(getattr(estimator, method)).parameters


def _estimators(estimator: Any) -> Iterator[tuple[str, Any]]:
    yield "", estimator
    for path, value in estimator.get_params(deep=True).items():
        if hasattr(value, "fit") and hasattr(value, "get_params") and not isinstance(value, type):
            yield f"{path}__", value


def _told(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Return the estimators that metadata reach: this one and those inside it, but none inside one that draws."""
    drawing = [path for path, one in _estimators(estimator) if _draws(one)]
    for path, one in _estimators(estimator):
        if not any(path != outer and path.startswith(outer) for outer in drawing):
            yield path, one


def _own(path: str, estimator: Any) -> list[StatedSet]:
    owner = type(estimator).__name__
    if hasattr(estimator, "fixed_uncertainty"):
        name, uncertainty = estimator.fixed_uncertainty()
        return [StatedSet(path + name, uncertainty, True, owner)]
    if hasattr(estimator, "stated_uncertainty"):
        name, uncertainty = estimator.stated_uncertainty()
        return [] if uncertainty is None else [StatedSet(path + name, uncertainty, False, owner)]
    return [
        StatedSet(path + name, value, False, owner)
        for name, value in estimator.get_params(deep=False).items()
        if isinstance(value, UncertaintySet)
    ]
