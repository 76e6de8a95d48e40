"""The sets that an estimator, and those inside it, were given in their constructors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty import Ball, GaussianNoise, IntervalBox


class Holder(NamedTuple):
    """A set in an estimator."""

    path: str
    """The parameter, ``outer__inner`` where the estimator is inside another one."""
    uncertainty: UncertaintySet
    is_fixed: bool = False
    """Whether no other set can take its place: it is stated by plain numbers."""
    owner: str = ""
    """The name of the estimator's class."""


def holders(estimator: Any) -> list[Holder]:
    """Return the sets that an estimator and those inside it hold."""
    found = [holder for path, one in _estimators(estimator) for holder in _own(path, one)]
    if found:
        _refuse_pipelines(estimator)
    return found


def _refuse_pipelines(estimator: Any) -> None:
    """Raise where a set would be in the units of what a pipeline is given, but used in those of its last step."""
    if isinstance(estimator, Pipeline):
        raise ValueError(
            f"UncertainPipeline: its last step is a {type(estimator).__name__}. Make its steps steps of the outer one."
        )
    if any(isinstance(one, Pipeline) and not _carries(one) for _, one in _estimators(estimator)):
        raise ValueError(
            f"UncertainPipeline: inside {type(estimator).__name__} there is a plain Pipeline, which passes uncertainty on as "
            "it is. Use an UncertainPipeline there too."
        )


def _carries(estimator: Any) -> bool:
    return hasattr(estimator, "carried")


def takers(estimator: Any, names: set[str]) -> list[str]:
    """Return the names of estimators whose `fit` takes some of these metadata, and that hold no set to give them a meaning."""
    return [
        type(one).__name__
        for path, one in _estimators(estimator)
        if _is_taker(one, names) and not _own(path, one) and not _carries(one)
    ]


def _is_taker(estimator: Any, names: set[str]) -> bool:
    """Return whether the `fit` of an estimator takes some metadata for itself, not to hand them on to others inside it."""
    is_alone = len(list(_estimators(estimator))) == 1
    return bool(names & set(inspect.signature(estimator.fit).parameters)) or (is_alone and takes(estimator.fit, names))


def meaning(names: set[str]) -> UncertaintySet:
    """Return the set that metadata state where nobody says otherwise."""
    if "X_radius" in names:
        return Ball()
    return IntervalBox() if names & {"X_lower", "X_upper"} else GaussianNoise()


def takes(method: Any, names: set[str]) -> bool:
    """Return whether a method takes all of these arguments."""
    found = inspect.signature(method).parameters
    return names <= set(found) or any(one.kind is one.VAR_KEYWORD for one in found.values())


def _estimators(estimator: Any) -> Iterator[tuple[str, Any]]:
    yield "", estimator
    for path, value in estimator.get_params(deep=True).items():
        if hasattr(value, "fit") and hasattr(value, "get_params") and not isinstance(value, type):
            yield f"{path}__", value


def _own(path: str, estimator: Any) -> list[Holder]:
    owner = type(estimator).__name__
    if hasattr(estimator, "fixed_uncertainty"):
        name, uncertainty = estimator.fixed_uncertainty()
        return [Holder(path + name, uncertainty, True, owner)]
    if hasattr(estimator, "stated_uncertainty"):
        name, uncertainty = estimator.stated_uncertainty()
        return [] if uncertainty is None else [Holder(path + name, uncertainty, False, owner)]
    return [
        Holder(path + name, value, False, owner)
        for name, value in estimator.get_params(deep=False).items()
        if isinstance(value, UncertaintySet)
    ]
