"""Records that print as a few lines of text, and as a small table in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import fill
from typing import Any, TypeVar

import numpy as np

WIDTH = 100
"""The width of notes, in characters."""
SHOWN = 8
"""The number of entries of a path or curve that are shown."""


class Summary:
    """A record with a title, lines of cells below it, and notes.

    ``print`` shows it as text, and a notebook as a table. Subclasses state the content.
    """

    def _title(self) -> str:
        return type(self).__name__

    def _columns(self) -> Sequence[str]:
        """Return the names of the columns; none if the first cell of each line is its name."""
        return ()

    def _lines(self) -> Sequence[Sequence[str]]:
        raise NotImplementedError

    def _notes(self) -> Sequence[str]:
        return ()

    def __str__(self) -> str:
        head, lines = self._columns(), self._lines()
        table = [head, *lines] if head else lines
        widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
        # cells are right-aligned if columns have names, so that numbers line up
        sides = ["<", *(">" if head else "<" for _ in widths[1:])]
        rows = [
            "  " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(cells, sides, widths, strict=True))
            for cells in table
        ]
        notes = [fill(note, WIDTH) for note in self._notes() if note]
        return "\n".join([self._title(), *(row.rstrip() for row in rows), *notes])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self._columns())
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in self._lines()
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes() if note)
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        return f"<table><caption>{escape(self._title())}</caption>{head}<tbody>{body}</tbody></table>{notes}"


Kind = TypeVar("Kind", bound=type)


def summarized(kind: Kind) -> Kind:
    """Make a named tuple print as a summary, with a line for each field and the sizes of arrays and tables."""
    lines = {"_lines": lambda record: [(name, _told(getattr(record, name))) for name in record._fields]}
    shared = ("_title", "_columns", "_notes", "__str__", "_repr_html_")
    for name, method in ({name: getattr(Summary, name) for name in shared} | lines).items():
        setattr(kind, name, method)
    return kind


def _told(value: Any) -> str:
    """Return a number or a word as text; for an array, table or list, its size and the spread of its numbers."""
    if value is None or isinstance(value, str):
        return value or "none"
    values = np.asarray(value)
    size = counted(len(values), "value") if values.ndim == 1 else " x ".join(map(str, values.shape))
    if values.dtype.kind != "f":
        return size or str(value)
    return f"{size}: {spread(values[~np.isnan(values)])}" if size else digits(values)


def counted(n: int, what: str) -> str:
    """Return "1 row", "2 rows"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def digits(value: Any) -> str:
    """Return a number with four digits, or "unknown" for NaN."""
    return "unknown" if np.isnan(value) else f"{float(value):.4g}"


def percent(share: Any) -> str:
    """Return a share in percent, or "unknown" for NaN."""
    return "unknown" if np.isnan(share) else f"{100 * float(share):.1f} %"


def share(chosen: Any) -> str:
    """Return the share of True values in percent, with the count."""
    return f"{percent(np.mean(chosen))} ({int(np.sum(chosen))} of {len(chosen)})" if len(chosen) else "no rows"


def spread(values: Any) -> str:
    """Return the median, the smallest and the largest of some numbers, as text."""
    known = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if not len(known):
        return "no rows"
    return f"median {digits(known[(len(known) - 1) // 2])}, from {digits(known[0])} to {digits(known[-1])}"


def some(n: int) -> list[int]:
    """Return up to `SHOWN` evenly spaced indices of n, including the first and the last."""
    return sorted({round(k) for k in np.linspace(0, n - 1, min(n, SHOWN))}) if n else []
