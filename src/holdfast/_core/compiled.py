"""The decision to use compiled kernels; `kernels` itself is imported only where they may save more time than loading takes.

The choice depends on the size of the fit and on whether the kernels lie compiled on disk when the process first asks, never
on a timing and never on earlier fits. Either way the optimum is certified alike; the results differ by rounding.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from holdfast._core.caller import warn_caller
from holdfast._core.progress import reporter

_said: list[Exception] = []
HERE = Path(__file__).parent
WORTHWHILE = 8e6
"""Matrix entries from which passes use kernels that are on disk already: loading them and numba takes some 0.4 s."""
COMPILING = 200.0
"""Times as many entries, 1.6e9, from which passes wait for the compiler: 3 s, on a slow machine 10, of which a fit of the
hinge loss, 25 s in NumPy, saves as much."""
STEPS_WORTHWHILE = 1e6
"""Entries visited by stochastic steps, plus 30 a step, from which they are compiled: half a second of plain Python."""
COMPILING_STEPS = 40.0
"""Times as many visits, 4e7, from which steps wait for the compiler: 20 s of plain Python."""


def repays(n_entries: int) -> bool:
    """Return whether passes over so many matrix entries should use kernels."""
    return n_entries >= WORTHWHILE and (n_entries >= COMPILING * WORTHWHILE or are_cached("PASSES")) and is_installed()


def steps_repay(n_visits: int) -> bool:
    """Return whether stochastic steps that visit so many entries should be compiled."""
    is_long = n_visits >= COMPILING_STEPS * STEPS_WORTHWHILE
    return n_visits >= STEPS_WORTHWHILE and (is_long or are_cached("STEPS")) and is_installed()


@cache
def is_installed() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@cache
def are_cached(group: str) -> bool:
    """Return whether all kernels of a group, "PASSES" or "STEPS", lay compiled on disk when this was first asked."""
    return _may_be_cached() and bool(
        _asked(lambda kernels: all(kernels.named(name).is_cached() for name in getattr(kernels, group)))
    )


def _may_be_cached() -> bool:
    """Return whether numba is worth asking: where none lie beside this file, loading it costs more than many a fit."""
    is_elsewhere = "NUMBA_CACHE_DIR" in os.environ or not os.access(HERE, os.W_OK)
    return is_elsewhere or any((HERE / "__pycache__").glob("kernels.*.nbi"))


@cache
def kernel(name: str) -> Any | None:
    """Return the compiled function of this name, compiling it if need be; None without numba."""
    return _asked(lambda kernels: kernels.named(name).loaded)


def _asked(question: Callable[[Any], Any]) -> Any | None:
    """Return the answer of the module of kernels, or None without numba or where its cache is damaged."""
    if not is_installed():
        return None
    try:
        from holdfast._core import kernels

        return question(kernels)
    except Exception as reason:  # whatever a damaged cache makes of it
        _warn_uncompiled(reason)
        return None


def compile(*, verbose: int = 1) -> None:
    """Compile the kernels for large data and keep them on disk, once after installation.

    Until then fits run in NumPy, unless they are so long that compiling surely repays, so that no first fit waits for a
    compiler. Afterwards passes over 8 million matrix entries and more, and stochastic steps over a million, use the kernels,
    in this process and in all that start later. Results change by rounding only. Needs numba (``pip install
    holdfast[fast]``); without it, nothing happens. numba keeps the kernels in the folder that ``NUMBA_CACHE_DIR`` names, or
    beside holdfast, and compiles them anew for another version of holdfast or numba, or another type of processor.

    Parameters
    ----------
    verbose : int, default=1
        0 logs no progress.

    Examples
    --------
    >>> import holdfast
    >>> holdfast.compile()  # doctest: +SKIP
    [holdfast] compiling gaussian_hinge, 1 of 14
    ...
    """
    report = reporter(verbose)
    if not is_installed():
        report("numba is not installed, so there is nothing to compile: pip install holdfast[fast]")
        return
    from holdfast._core import kernels

    names = list(dict.fromkeys(kernels.PASSES + kernels.STEPS))
    for i, name in enumerate(names, 1):
        report(f"compiling {name}, {i} of {len(names)}")
        kernel(name)
    are_cached.cache_clear()
    if are_cached("PASSES") and are_cached("STEPS"):
        report("all kernels are compiled and on disk")


def _warn_uncompiled(reason: Exception) -> None:
    """Say, once, that fits go on without compiled kernels, and how to get them back."""
    if not _said:
        _said.append(reason)
        warn_caller(
            f"numba could not load the compiled kernels ({type(reason).__name__}: {reason!s:.120}), so fits go on in NumPy, "
            "more slowly. Most likely its cache is damaged: delete the files *.nbi and *.nbc in the folder __pycache__ of "
            "holdfast/_core, or in NUMBA_CACHE_DIR.",
            RuntimeWarning,
        )
