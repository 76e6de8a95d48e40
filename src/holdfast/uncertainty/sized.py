"""What sets with a radius have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import one_number


class SizedSet(UncertaintySet):
    """A set whose `radius` multiplies its size, however else that is stated."""

    radius: Any

    def times(self, factor: float) -> Self:
        return type(self)(**(self.get_params(deep=False) | {"radius": factor * self._radius()}))

    def as_stated(self, metadata: Mapping[str, Any]) -> Self:
        return type(self)(**(self.get_params(deep=False) | {"radius": 1.0}))

    def _radius(self) -> float:
        return one_number(self.radius, f"{type(self).__name__}(radius=...)", "radius")
