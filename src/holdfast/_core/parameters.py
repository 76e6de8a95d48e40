"""Small parameter objects that scikit-learn can clone, search over and print."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from holdfast._core.allowed import Allowed, refuse_wrong, short


class Parameters:
    """An object that consists of its constructor's arguments.

    Sets, losses and solvers derive from it, so that ``clone``, ``get_params``, ``set_params`` and ``GridSearchCV`` over
    ``noise__std`` work on them. As in scikit-learn, a constructor only stores its arguments; they are checked when they
    are used.
    """

    parameter_table: ClassVar[Mapping[str, Allowed]] = {}
    """The allowed values of parameters, as far as they do not depend on the rows."""

    def check_parameters(self) -> None:
        """Raise ValueError if a parameter has a value that the table does not allow."""
        refuse_wrong(self, self.parameter_table, type(self).__name__)

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, those of nested objects as ``outer__inner`` when ``deep``."""
        found = {}
        for name in self._parameter_names():
            value = getattr(self, name)
            found[name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return found

    def stated_by_feature(self) -> dict[str, Any]:
        """Return the parameters that may hold one number for each feature of the rows."""
        return {name: value for name, value in self.get_params(deep=False).items() if not name.startswith("X_")}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, nested ones as ``outer__inner``; return the object itself."""
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in self._parameter_names():
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}. It has: {', '.join(self._parameter_names())}."
                )
            if inner:
                getattr(self, name).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={short(value)}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(np.array_equal(mine, getattr(other, name)) for name, mine in self.get_params(deep=False).items())

    __hash__ = None  # type: ignore[assignment]


def resolve(value: Any, named: dict[str, type], call: str) -> Any:
    """Return `value` if it is an object, or an instance of the class that it names if it is a string.

    >>> resolve("list", {"list": list}, "f(x=%s)")
    []
    """
    if not isinstance(value, str):
        return value
    if value not in named:
        raise ValueError(f"{call % repr(value)}: no such name. Choose one of {', '.join(map(repr, named))}.")
    return named[value]()
