"""Data sets in a folder of .npz files named by the environment variable HOLDFAST_DATA."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np


def load_from_folder(name: str) -> dict[str, Any]:
    """Return the arrays of ``$HOLDFAST_DATA/<name>.npz``: X in float64, y, and whatever else the file holds.

    If the file has ``X_scale``, X is divided by it, so that data can be stored as integers. Pickled objects are
    refused.
    """
    folder = os.environ.get("HOLDFAST_DATA")
    if not folder:
        raise FileNotFoundError(f"load_from_folder({name!r}): set HOLDFAST_DATA to the folder that holds {name}.npz.")
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        found = ", ".join(sorted(p.stem for p in Path(folder).glob("*.npz"))) or "none"
        raise FileNotFoundError(f"load_from_folder({name!r}): HOLDFAST_DATA has no file {name}.npz. It has: {found}.")
    with np.load(path, allow_pickle=False) as stored:
        data = {key: stored[key] for key in stored.files}
    scale = float(data.pop("X_scale", 1.0))
    if data["X"].dtype.kind in "iuf":
        data["X"] = data["X"].astype(np.float64) / scale
    return data
