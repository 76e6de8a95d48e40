"""The parameters of a pipeline, and the checks of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast._core.allowed import NOTHING, Choice, Instance, Switch, refuse_wrong, short
from holdfast._core.metadata import METADATA
from holdfast.features.carrying import NONLINEAR
from holdfast.features.steps import CLAIMS

NAME = "UncertainPipeline"
SETTINGS = {
    "nonlinear": Choice(*NONLINEAR),
    "effects": Instance(Mapping, "give a dict from names of steps to what they are") | NOTHING,
    "transform_input": Instance((list, tuple, set), "give a list of names") | NOTHING,
    "verbose": Switch(),
}


def check_settings(pipeline: Any) -> None:
    """Raise if a parameter of a pipeline has a value that is not allowed."""
    if not _are_pairs(pipeline.steps):
        raise ValueError(
            f"{NAME}(steps={short(pipeline.steps):.80}): give a list of pairs (name, step), and at least one."
        )
    refuse_wrong(pipeline, SETTINGS, NAME)
    for path, said in (pipeline.effects or {}).items():
        if said not in CLAIMS:
            raise ValueError(f"{NAME}(effects={{{path!r}: {said!r}}}): say {' or '.join(map(repr, CLAIMS))}.")
        if path not in (names := _names_of_steps(pipeline)):
            raise ValueError(f"{NAME}(effects={{{path!r}: {said!r}}}): no such step. Name one of {', '.join(names)}.")
    if both := [name for name in pipeline.transform_input or () if name in METADATA]:
        raise ValueError(
            f"{NAME}(transform_input=...): leave out {min(both)}, which is carried through the steps anyway."
        )


def refuse_by_step(params: Mapping[str, Any], call: str) -> None:
    """Raise if errors of rows are passed to a single step, which would take them in its own units."""
    for path in params:
        step, _, name = path.rpartition("__")
        if step and name in METADATA:
            raise ValueError(
                f"{call}({path}=...): {step!r} would take it in its own units. Pass {name}=... to the pipeline's fit, in the "
                "units of X: the steps carry it."
            )


def _names_of_steps(pipeline: Any) -> list[str]:
    """Return the names of all steps, ``outer__inner`` for those inside others."""
    return [
        path
        for path, value in pipeline.get_params(deep=True).items()
        if hasattr(value, "transform") or (isinstance(value, str) and value in ("passthrough", "drop"))
    ]


def _are_pairs(steps: Any) -> bool:
    """Return whether this is a nonempty list of pairs."""
    is_list = isinstance(steps, list | tuple) and len(steps) > 0
    return is_list and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in steps)
