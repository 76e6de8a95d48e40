"""Fits that change an estimator only at their end, as a whole, and check parameters before they begin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from inspect import isfunction
from types import MethodType
from typing import Any, ClassVar

from holdfast._core.allowed import Allowed, refuse_wrong

METHODS = ("fit", "partial_fit")
_earlier: dict[int, dict[str, Any]] = {}
"""The attributes of estimators before the fit in progress, by the id of the twin that is fitted."""


class WholeFits:
    """An estimator that is unchanged if its `fit` or `partial_fit` fails or is interrupted.

    A subclass writes these methods as usual. Each works on a twin, whose attributes become those of the estimator in
    one assignment at the end. `fit` starts without fitted attributes (those that end in an underscore), so none is left
    over from an earlier fit. Attributes that these methods change in place, such as arrays of a stream, must be copied
    first.
    """

    parameter_table: ClassVar[Mapping[str, Allowed]] = {}
    """The allowed values of parameters, checked before every fit; those of base classes are added."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        tables = [vars(base).get("parameter_table", {}) for base in reversed(cls.__mro__)]
        cls.parameter_table = {name: allowed for table in tables for name, allowed in table.items()}
        for name in METHODS:
            if name in vars(cls):
                setattr(cls, name, _whole(vars(cls)[name], afresh=name == "fit"))

    def check_parameters(self, call: str | None = None) -> None:
        """Raise ValueError if a parameter has a value that the table does not allow, quoting `call` or the class."""
        refuse_wrong(self, self.parameter_table, call or type(self).__name__)

    def _before_fit(self, name: str) -> Any:
        """Return an attribute as it was before the fit in progress, None if there was none."""
        return _earlier.get(id(self), vars(self)).get(name)


def _whole(method: Any, *, afresh: bool) -> Any:
    """Return the method, working on a twin."""

    @wraps(method)
    def fitted(self: Any, *args: Any, **options: Any) -> Any:
        if id(self) in _earlier:  # a fit that calls the fit of its base class
            return method.__get__(self, type(self))(*args, **options)
        self.check_parameters()
        twin = object.__new__(type(self))
        before = vars(self)
        twin.__dict__ = {name: value for name, value in before.items() if not (afresh and _is_fitted(name))}
        _earlier[id(twin)] = before
        try:
            method.__get__(twin, type(twin))(*args, **options)
        except OverflowError as error:
            raise ValueError(
                f"{type(self).__name__}.{method.__name__}: X, sample_weight or other numbers given are too large ({error})."
            ) from error
        finally:
            del _earlier[id(twin)]
        self.__dict__ = twin.__dict__
        return self

    return fitted if isfunction(method) else _Offered(method, fitted)


class _Offered:
    """A method whose existence depends on another descriptor, such as that of ``available_if``."""

    def __init__(self, offer: Any, method: Any):
        self.offer, self.method = offer, method

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        offered = self.offer.__get__(instance, owner)  # raises AttributeError if the method does not exist
        return offered if instance is None else MethodType(self.method, instance)


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")
