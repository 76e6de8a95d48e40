"""Warnings that point to the line of the user's code, even if they arise deep in the library."""

from __future__ import annotations

import sys
import warnings

PACKAGE = __name__.split(".")[0]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line that called into this package, that is, the caller of its outermost function."""
    frame, level, found = sys._getframe(1), 2, 2
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").split(".")[0] == PACKAGE:
            found = level + 1
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=found)
