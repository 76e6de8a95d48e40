"""The allowed values of parameters, and the errors for other values."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from sys import maxsize
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
LARGEST = 1e150
"""The largest number accepted: products of two such numbers can be added without overflow."""


def short(value: Any) -> str:
    """Return a repr that fits on one line, even for large arrays and numbers."""
    if hasattr(value, "toarray"):
        return f"<sparse array of shape {value.shape}>"
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"<array of shape {value.shape}>"
    if hasattr(value, "columns"):
        return f"<frame of shape {value.shape}>"
    if isinstance(value, int) and abs(value) > maxsize:
        return f"<an integer of {value.bit_length()} bits>"
    return f"{value!r:.200}"


def as_numbers(value: Any, *, copy: bool = True) -> NDArray[np.float64]:
    """Return real numbers, including NaN and infinity, as a float array. Raises TypeError for anything else.

    With copy=False the result may be the given array itself, so it must not be changed.
    """
    try:
        out = np.asarray(value)
        if out.dtype.kind == "O" and hasattr(value, "isna"):  # pandas.NA cannot be converted to a float
            out = np.where(value.isna(), np.nan, out)
        if out.dtype.kind in "iufO":
            return out.astype(np.float64, copy=copy)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"no numbers: {short(value)}")


def is_array(value: Any) -> bool:
    """Return whether a value has entries, even if they do not form a regular array."""
    try:
        return np.ndim(value) > 0
    except ValueError:  # lists of several lengths
        return True


def is_too_large(value: Any) -> bool:
    """Return whether a value is a finite number of which sums overflow."""
    return isinstance(value, Real) and LARGEST < abs(value) < np.inf  # type: ignore[operator]


class Allowed(ABC):
    """The values that a parameter may have."""

    advice: Any
    """The advice at the end of an error message, such as "give True or False"."""

    @abstractmethod
    def __contains__(self, value: object) -> bool:
        """Return whether the value is allowed."""

    def checked(self, value: Any, call: str) -> Any:
        """Return the value. Raises ValueError if it is not allowed, quoting `call`, such as ``"Ball(radius"``."""
        if value not in self:
            raise ValueError(f"{call}={short(value)}): {self.advice}.")
        return value

    def __or__(self, other: Allowed) -> Either:
        return Either(self, other)


@dataclass(frozen=True)
class Either(Allowed):
    """A value of one of two kinds."""

    one: Allowed
    other: Allowed

    @property
    def advice(self) -> str:
        return f"{self.one.advice}, or {self.other.advice.removeprefix('give ').removeprefix('must be ')}"

    def __contains__(self, value: object) -> bool:
        return value in self.one or value in self.other

    def checked(self, value: Any, call: str) -> Any:
        """Return the value if it may be given."""
        if value not in self and is_too_large(value):
            self.one.checked(value, call)  # which says so
        return super().checked(value, call)


@dataclass(frozen=True)
class Choice(Allowed):
    """One of a few names, or None."""

    names: tuple[str | None, ...]
    advice: str = ""

    def __init__(self, *names: str | None, advice: str = ""):
        listed = ", ".join(map(repr, names[:-1])) + " or " * (len(names) > 1) + repr(names[-1])
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "advice", advice or f"give {listed}")

    def __contains__(self, value: object) -> bool:
        return (value is None or isinstance(value, str)) and value in self.names


NOTHING = Choice(None)


@dataclass(frozen=True)
class Switch(Allowed):
    """True or False."""

    advice: str = "give True or False"

    def __contains__(self, value: object) -> bool:
        return isinstance(value, bool | np.bool_)


@dataclass(frozen=True)
class Number(Allowed):
    """A finite number from `low` to `high`; `low` itself is excluded if `strictly`."""

    low: float = 0.0
    high: float = np.inf
    strictly: bool = False

    @property
    def advice(self) -> str:
        if np.isfinite(self.high):
            return f"must be a number {'above' if self.strictly else 'from'} {self.low:g} to {self.high:g}"
        above = f" {'>' if self.strictly else '>='} {self.low:g}" if np.isfinite(self.low) else ""
        return f"must be a finite number{above}"

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        try:
            number = float(value)
        except OverflowError:
            return False
        above = self.low < number if self.strictly else self.low <= number
        return above and abs(number) <= LARGEST and number <= self.high

    def checked(self, value: Any, call: str) -> float:
        """Return the number as a float."""
        if is_too_large(value):
            raise ValueError(
                f"{call}={short(value)}): sums of such numbers overflow. Use other units, {LARGEST:g} at most."
            )
        return float(super().checked(value, call))


@dataclass(frozen=True)
class Count(Allowed):
    """An integer, from `least` to `most`."""

    least: int = 1
    most: int = maxsize

    @property
    def advice(self) -> str:
        above = f" >= {self.least}" if self.least > -maxsize else ""
        return f"must be an integer{above}" + (f" and <= {self.most}" if self.most < maxsize else "")

    def __contains__(self, value: object) -> bool:
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        return is_whole and self.least <= int(value) <= self.most  # type: ignore[call-overload]

    def checked(self, value: Any, call: str) -> int:
        """Return the number as an int."""
        return int(super().checked(value, call))


@dataclass(frozen=True)
class Order(Allowed):
    """The order of a norm: one of `orders`, or any number >= 1 if that is empty. ``"inf"`` means ``numpy.inf``."""

    orders: tuple[float, ...] = ()

    @property
    def advice(self) -> str:
        usual = "give 1, 2 or 'inf'"
        return usual if self.orders else f"{usual}, or another number >= 1"

    def __contains__(self, value: object) -> bool:
        if isinstance(value, str | float) and value in ("inf", np.inf):
            return True
        return value in Number(1) and (not self.orders or value in self.orders)

    def checked(self, value: Any, call: str) -> float:
        """Return the order as a float."""
        return float(super().checked(value, call))


NORM = Order((1, 2, np.inf))


@dataclass(frozen=True)
class Instance(Allowed):
    """An instance of a class, not the class itself."""

    kind: type | tuple[type, ...]
    advice: str

    def __contains__(self, value: object) -> bool:
        return isinstance(value, self.kind)


@dataclass(frozen=True)
class Having(Allowed):
    """An object with given methods, not a class with them."""

    methods: tuple[str, ...]
    advice: str

    def __contains__(self, value: object) -> bool:
        return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in self.methods)


@dataclass(frozen=True)
class Listed(Allowed):
    """A list, tuple or array of one dimension."""

    advice: str

    def __contains__(self, value: object) -> bool:
        try:
            return np.ndim(value) == 1  # type: ignore[arg-type]
        except ValueError:  # lists of several lengths
            return False


@dataclass(frozen=True)
class Several(Allowed):
    """A list, tuple or one-dimensional array with at least one value, all of one kind."""

    each: Allowed

    @property
    def advice(self) -> str:
        return f"give a list of one or more, each of which {self.each.advice}"

    def __contains__(self, value: object) -> bool:
        is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
        return is_list and len(value) > 0 and all(one in self.each for one in value)  # type: ignore[arg-type, attr-defined]


TEXT = Instance(str, "give a text") | NOTHING
NAMES = Listed("give a list of names") | NOTHING
SEED = Count(0, 2**32 - 1) | NOTHING | Instance(np.random.RandomState, "a numpy RandomState")
ANY_SEED = SEED | Instance(np.random.Generator, "a Generator")
VERBOSE = Count(0) | Switch()
JOBS = Count(-maxsize) | NOTHING


def refuse_wrong(owner: Any, table: Mapping[str, Allowed], call: str) -> None:
    """Raise ValueError if an attribute of `owner` has a value that the table does not allow."""
    for name, allowed in table.items():
        if hasattr(owner, name) and (value := getattr(owner, name)) not in allowed:
            allowed.checked(value, f"{call}({name}")


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature without types and without `self`, as callers see it."""
    named = [part for part in signature.parameters.values() if part.name not in ("self", "cls")]
    plain = [part.replace(annotation=inspect.Parameter.empty) for part in named]
    return inspect.Signature(plain)


def arguments(**table: Allowed) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of a function against the table at every call."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name, signature = function.__qualname__, inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            try:
                given = signature.bind(*args, **options).arguments
            except TypeError as error:
                raise TypeError(f"{name}: {error}. It is {name}{_plain(signature)}.") from None
            # a method quotes the class of its object, which may inherit it
            call = f"{type(given['self']).__name__}.{function.__name__}" if "self" in given else name
            for argument, allowed in table.items():
                if argument in given:
                    allowed.checked(given[argument], f"{call}({argument}")
            try:
                return function(*args, **options)
            except OverflowError as error:
                asked = ", ".join(argument for argument in given if argument not in ("self", "cls"))
                raise ValueError(f"{call}({asked}): some numbers are too large ({error}).") from error

        return checked

    return decorate
