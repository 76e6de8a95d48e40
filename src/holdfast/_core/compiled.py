"""When to use compiled kernels; `kernels` itself is imported only where they repay loading it."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from holdfast._core.caller import warn_caller

_said: list[Exception] = []
WORTHWHILE = 8e6
"""Matrix entries from which passes are compiled: loading numba takes some 0.5 s (several the first time), so that smaller
fits would wait for longer than they take. One number, whatever has been loaded: a fit must not depend on earlier ones."""


STEPS_WORTHWHILE = 1e6
"""Entries visited by stochastic steps, plus 30 a step, from which they are compiled: half a second of plain Python."""


@cache
def is_available() -> bool:
    """Return whether numba is installed and loads the kernels; loads them."""
    return importlib.util.find_spec("numba") is not None and _kernels() is not None


def repays(n_entries: int) -> bool:
    """Return whether passes over so many matrix entries should be compiled."""
    return n_entries >= WORTHWHILE and is_available()


def kernel(name: str) -> Any | None:
    """Return the compiled function of this name, or None without numba."""
    return getattr(_kernels(), name) if is_available() else None


@cache
def _kernels() -> Any | None:
    try:
        from holdfast._core import kernels
    except Exception as reason:  # whatever a damaged cache makes of it
        warn_uncompiled(reason)
        return None
    return kernels


def warn_uncompiled(reason: Exception) -> None:
    """Say, once, that fits go on without compiled kernels, and how to get them back."""
    if not _said:
        _said.append(reason)
        warn_caller(
            f"numba could not load the compiled kernels ({type(reason).__name__}: {reason!s:.120}), so fits go on in NumPy, "
            "more slowly. Most likely its cache is damaged: delete the files *.nbi and *.nbc in the folder __pycache__ of "
            "holdfast/_core, or in NUMBA_CACHE_DIR.",
            RuntimeWarning,
        )
