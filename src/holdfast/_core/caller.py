"""Warnings at the line that called the library, however deep in it they arise."""

from __future__ import annotations

import sys
import warnings

INSIDE = ("holdfast", "sklearn.callback")


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn, naming the innermost line that is not in this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_inside(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in INSIDE)
