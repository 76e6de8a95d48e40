"""Methods that exist only with some settings; otherwise the error names the settings that are needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, cast


def offered_if(check: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for a method that exists only if `check(object)` passes.

    Like scikit-learn's ``available_if``, except that users see the message of the AttributeError that `check` raises.
    """
    return lambda method: _Offer(method, check)


class _Offer:
    """A method that exists or not, depending on the object."""

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], bool]):
        self.method, self.check = method, check
        update_wrapper(cast(Any, self), method)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.method
        if not self.check(instance):
            raise AttributeError(f"{type(instance).__name__} has no {self.method.__name__} with these settings.")
        return MethodType(self.method, instance)
