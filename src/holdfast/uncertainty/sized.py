"""The common base of sets with a radius."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from holdfast._core.exceptions import UnstatedError
from holdfast._core.uncertainty import UncertaintySet
from holdfast.uncertainty.checks import one_number


class SizedSet(UncertaintySet):
    """A set whose `radius` multiplies a size stated elsewhere, by parameters or by row; None leaves it as it is."""

    radius: Any
    size_parameters: ClassVar[tuple[str, ...]] = ("radius",)
    """The parameters that state a size; one of them is enough."""

    @property
    def has_size(self) -> bool:  # type: ignore[override]
        """Whether one of its parameters states its size."""
        return any(getattr(self, name) is not None for name in self.size_parameters)

    @property
    def row_factor(self) -> float:
        return self._radius()

    def as_shape(self) -> Self:
        return self.times(1.0) if self.radius is None else self

    def times(self, factor: float) -> Self:
        return type(self)(**(self.get_params(deep=False) | {"radius": factor * self._radius()}))

    def as_stated(self, metadata: Mapping[str, Any]) -> Self:
        return type(self)(**(self.get_params(deep=False) | {"radius": 1.0}))

    def _radius(self) -> float:
        if self.radius is None:
            return 1.0
        return one_number(self.radius, f"{type(self).__name__}(radius=...)", "radius")

    def _radius_alone(self) -> float:
        """Return the radius if nothing else states the size. Raises UnstatedError if it is None."""
        if self.radius is None:
            raise UnstatedError(
                f"{self!r}: its size is stated neither here nor by the rows. Give one for all rows in the units of the "
                f"features, {type(self).__name__}(radius=0.1) say, or pass that of each row, {' or '.join(self.metadata)}."
            )
        return self._radius()
