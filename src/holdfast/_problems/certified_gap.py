"""The certified gap of parameters: declared here for views that report it, implemented by `_proofs`."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from holdfast._core.loss import Array


@singledispatch
def certified_gap(problem: Any, parameters: Array) -> tuple[float, float]:
    """Return the objective and the certified relative gap at these parameters."""
    raise NotImplementedError(f"No proof is known for {type(problem).__name__}.")
