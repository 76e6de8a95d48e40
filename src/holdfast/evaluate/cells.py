"""Finished cells of a long run, kept in a file that is always complete, so that the run can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from pickle import PicklingError
from threading import Lock, get_ident
from time import monotonic
from typing import Any

import numpy as np
from joblib import hash as hash_of
from scipy import sparse

from holdfast._core.allowed import Number

BETWEEN = 1.0
"""The least number of seconds between two writes of the file."""
SHARE = Number(0, 1)
WRITING = Lock()
"""Held while a file is read and replaced, so that runs in other threads lose none of their results."""


def digest(*values: Any) -> str:
    """Return a hash that identifies these values: numbers, texts, arrays, sparse matrices, or dicts of them."""
    found = hashlib.sha256()
    for value in values:
        if sparse.issparse(value):
            whole = sparse.csr_array(value)
            found.update(digest(whole.shape, whole.data, whole.indices, whole.indptr).encode())
        elif isinstance(value, Mapping):
            found.update(digest(*(part for pair in value.items() for part in pair)).encode())
        else:
            array = np.asarray(repr(value) if is_ragged(value) else value)
            plain = array.astype(str) if array.dtype.kind == "O" else np.ascontiguousarray(array)
            found.update(f"{plain.dtype.str}{plain.shape}".encode())
            found.update(plain.tobytes())
    return found.hexdigest()


def is_ragged(value: Any) -> bool:
    """Return whether a value is made of lists of different lengths."""
    try:
        np.shape(value)
    except ValueError:
        return True
    return False


def fingerprint(model: Any, call: str) -> str:
    """Return a hash that identifies a model by its parameters and fitted attributes."""
    try:
        return str(hash_of(model))
    except (PicklingError, TypeError, AttributeError) as reason:
        raise ValueError(
            f"{call}: {model!r:.80} cannot be told from other models, as it cannot be pickled ({reason}). Give resume=None, or "
            "a model without local functions and classes."
        ) from None


class Cells:
    """The results of a run's cells, by the cells' names.

    Parameters
    ----------
    path : path-like or None
        A file of JSON lines: first the run's `facts`, then one line for each finished cell. It is replaced as a whole
        or not at all, and keeps what other threads have added. None: no file is written.
    facts : dict
        What identifies the run: a file with other facts is refused.
    call : str
        The name of the call in messages.
    """

    def __init__(self, path: Any, facts: Mapping[str, Any], call: str):
        if not isinstance(path, str | os.PathLike | None) or "\0" in str(path):
            raise TypeError(f"{call}(resume={path!r:.80}): name a file, or give None.")
        self.path, self.facts = None if path is None else Path(path), dict(facts)
        self.found: dict[tuple[Any, ...], float] = {}
        self._written, self._call = monotonic(), f"{call}(resume={str(path)!r})"
        if self.path is not None and (self.path.is_dir() or not self.path.parent.is_dir()):
            raise FileNotFoundError(f"{self._call}: name a file in a folder that exists.")
        with WRITING:
            self._read()

    def _read(self) -> None:
        """Add the results in the file, which must be of this run."""
        if self.path is None or not self.path.exists():
            return
        try:
            facts, *lines = (json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines())
            found = {tuple(line["cell"]): SHARE.checked(line["result"], "(result") for line in lines}
            other = [name for name, value in self.facts.items() if facts.get(name) != value]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(
                f"{self._call}: the file is no record of a run with results from 0 to 1. Name another one."
            ) from None
        if other:
            raise ValueError(
                f"{self._call}: the file is the record of another run: other {', '.join(other)}. Name another file, or delete "
                "it."
            )
        self.found = found | self.found

    def add(self, results: Mapping[tuple[Any, ...], float]) -> None:
        """Keep results; they are written now if the last write was a second or more ago, otherwise by a later call."""
        with WRITING:
            self.found.update(results)
            if monotonic() - self._written >= BETWEEN:
                self._write()

    def close(self) -> None:
        """Write all results to the file."""
        with WRITING:
            self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        self._read()  # what others have added meanwhile
        lines = [self.facts, *({"cell": list(cell), "result": value} for cell, value in self.found.items())]
        # replacing is atomic, writing is not: an interruption leaves the old file or the new one, never a part
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.{get_ident()}.tmp")
        try:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError as error:
            raise OSError(f"{self._call}: the file cannot be written ({error.strerror}). Name another one.") from error
        self._written = monotonic()
