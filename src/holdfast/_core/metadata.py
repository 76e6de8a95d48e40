"""What may be stated of each row besides its values: the names of these arguments, the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METADATA = ("X_std", "X_cov", "X_factor", "X_lower", "X_upper", "X_radius")


def known_metadata(metadata: Mapping[str, Any], call: str) -> dict[str, Any]:
    """Return what is stated, without None; TypeError for names that mean nothing."""
    if unknown := sorted(set(metadata) - set(METADATA)):
        raise TypeError(f"{call}: no such argument: {', '.join(unknown)}. Sets are stated by {', '.join(METADATA)}.")
    return {name: value for name, value in metadata.items() if value is not None}
