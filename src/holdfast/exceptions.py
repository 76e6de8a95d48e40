"""Warnings and errors of holdfast, for ``except`` and for filters of warnings."""

from holdfast._core.exceptions import (
    CollapseWarning,
    EndOfPathWarning,
    NoCertificateError,
    NothingLearnedWarning,
    ProofError,
    UnitsWarning,
    UnstatedError,
)

__all__ = [
    "CollapseWarning",
    "EndOfPathWarning",
    "NoCertificateError",
    "NothingLearnedWarning",
    "ProofError",
    "UnitsWarning",
    "UnstatedError",
]
