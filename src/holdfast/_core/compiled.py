"""The decision whether to use compiled kernels. `kernels` is imported only if that may save more time than it takes.

The decision depends on the size of the fit, and on whether compiled kernels are on disk when the process first asks. It
never depends on timings or on earlier fits. The optimum is certified either way; results differ by rounding only.
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
"""From this number of matrix entries, passes use kernels that are on disk; loading them and numba takes some 0.4 s."""
COMPILING = 200.0
"""From this many times `WORTHWHILE` (1.6e9 entries), passes wait for the compiler. That takes 3 s, on a slow machine
10 s, and saves as much in a fit of the hinge loss that takes 25 s in NumPy."""
STEPS_WORTHWHILE = 1e6
"""From this number of entries visited (plus 30 per step), steps use kernels on disk: 0.5 s in plain Python."""
COMPILING_STEPS = 40.0
"""From this many times `STEPS_WORTHWHILE` (4e7 visits), steps wait for the compiler: 20 s in plain Python."""


def repays(n_entries: int) -> bool:
    """Return whether passes over `n_entries` matrix entries should use kernels."""
    return n_entries >= WORTHWHILE and (n_entries >= COMPILING * WORTHWHILE or are_cached("PASSES")) and is_installed()


def steps_repay(n_visits: int) -> bool:
    """Return whether stochastic steps that visit `n_visits` entries should use kernels."""
    is_long = n_visits >= COMPILING_STEPS * STEPS_WORTHWHILE
    return n_visits >= STEPS_WORTHWHILE and (is_long or are_cached("STEPS")) and is_installed()


@cache
def is_installed() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@cache
def are_cached(group: str) -> bool:
    """Return whether all kernels of a group, "PASSES" or "STEPS", were compiled on disk at the first call."""
    return _may_be_cached() and bool(
        _asked(lambda kernels: all(kernels.named(name).is_cached() for name in getattr(kernels, group)))
    )


def _may_be_cached() -> bool:
    """Return whether kernels may be on disk; if not, loading numba, which costs more than many fits, is avoided."""
    is_elsewhere = "NUMBA_CACHE_DIR" in os.environ or not os.access(HERE, os.W_OK)
    return is_elsewhere or any((HERE / "__pycache__").glob("kernels.*.nbi"))


@cache
def kernel(name: str) -> Any | None:
    """Return the compiled function of this name, compiling it if necessary; None without numba."""
    return _asked(lambda kernels: kernels.named(name).loaded)


def _asked(question: Callable[[Any], Any]) -> Any | None:
    """Return question(kernels), or None if numba is not installed or its cache is damaged."""
    if not is_installed():
        return None
    try:
        from holdfast._core import kernels

        return question(kernels)
    except Exception as reason:  # a damaged cache may raise any error
        _warn_uncompiled(reason)
        return None


def compile(*, verbose: int = 1) -> None:
    """Compile the kernels for large data and keep them on disk, once after installation.

    Before that, fits run in NumPy, so that no first fit waits for a compiler, unless a fit is so long that compiling
    surely pays off. Afterwards, passes over 8 million matrix entries or more, and stochastic steps over a million or
    more, use the kernels, in this process and in later ones. Results change by rounding only. This needs numba (``pip
    install holdfast[fast]``); without numba nothing happens. numba keeps the kernels in the folder ``NUMBA_CACHE_DIR``,
    or beside holdfast. It compiles them again for another version of holdfast or numba, or another type of processor.

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
    """Warn, once, that fits continue without compiled kernels, and how to repair them."""
    if not _said:
        _said.append(reason)
        warn_caller(
            f"numba could not load the compiled kernels ({type(reason).__name__}: {reason!s:.120}), so fits go on in NumPy, "
            "more slowly. Most likely its cache is damaged: delete the files *.nbi and *.nbc in the folder __pycache__ of "
            "holdfast/_core, or in NUMBA_CACHE_DIR.",
            RuntimeWarning,
        )
