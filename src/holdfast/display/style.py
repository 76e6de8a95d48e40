"""What all pictures share: axes, colours that colour-blind people can tell apart, and markers that need no colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Any

from sklearn.utils._optional_dependencies import check_matplotlib_support

from holdfast._core.allowed import NOTHING, Having
from holdfast._core.caller import warn_caller
from holdfast._core.exceptions import NoCertificateError

AXES = Having(("plot", "set_xlabel"), "give matplotlib's Axes") | NOTHING
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""The palette of Okabe and Ito, without yellow, which is faint on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def needs_matplotlib(call: str) -> None:
    """Raise ImportError, before any work is done, where matplotlib is missing."""
    check_matplotlib_support(call)


def those_certified(models: Mapping[str, Any], of: Callable[[Any], Any], call: str) -> dict[str, Any]:
    """Return `of(model)` for each model that has a certificate; warn of others, raise if no model has one."""
    found: dict[str, Any] = {}
    refused: dict[str, NoCertificateError] = {}
    for name, model in models.items():
        try:
            found[name] = of(model)
        except NoCertificateError as error:
            refused[name] = error
    if not found:
        raise next(iter(refused.values()))
    for name, why in refused.items():
        warn_caller(f"{call}: {name!r} is left out. {why}", UserWarning)
    return found


def axes_for(display: Any, ax: Any) -> Any:
    """Return the axes to draw on, `ax` or new ones, and store them on the display, as `ax_` and `figure_`."""
    needs_matplotlib(f"{type(display).__name__}.plot")
    AXES.checked(ax, f"{type(display).__name__}.plot(ax")
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def looks(n: int) -> list[dict[str, Any]]:
    """Return colours and markers for n lines."""
    return [
        {"color": colour, "marker": marker}
        for colour, marker in islice(zip(cycle(COLOURS), cycle(MARKERS), strict=False), n)
    ]


def percent_axis(ax: Any, label: str) -> None:
    """Show the shares on the vertical axis in percent."""
    from matplotlib.ticker import PercentFormatter

    ax.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=""))
    ax.set_ylabel(f"{label} (%)")
    ax.grid(alpha=0.3)
