"""Arguments that state the errors of each row: their names, types and documentation, written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypedDict, TypeVar, get_args, get_type_hints

F = TypeVar("F", bound=Callable[..., Any])


class NoiseByRow(TypedDict, total=False):
    """The Gaussian noise of each row.

    X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Standard deviation of the independent error of each entry; entries that a sparse matrix does not store are
        exact.
    X_cov : array-like of shape (n_samples, n_features, n_features), default=None
        Covariance of the errors of each row.
    X_factor : array-like of shape (n_samples, n_features, r), default=None
        A factor F of each row's covariance F F'.
    """

    X_std: Any
    X_cov: Any
    X_factor: Any


class SetsByRow(NoiseByRow, total=False):
    """The noise or the uncertainty set of each row.

    X_std : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        With `Box`, the half-width of the interval of each entry; with `Ellipsoid`, `ChanceConstraint` or
        `GaussianNoise`, its standard deviation.
    X_cov : array-like of shape (n_samples, n_features, n_features), default=None
        With `Ellipsoid`, `ChanceConstraint` or `GaussianNoise` the covariance of each row.
    X_factor : array-like of shape (n_samples, n_features, r), default=None
        A factor F of each row's covariance F F'.
    X_lower, X_upper : array-like of shape (n_samples, n_features), default=None
        With `IntervalBox` the interval of each entry, ``X_lower <= X <= X_upper``.
    X_radius : array-like of shape (n_samples,), default=None
        With `Ball` the radius of each row.
    """

    X_lower: Any
    X_upper: Any
    X_radius: Any


NOISE = tuple(get_type_hints(NoiseByRow))
METADATA = tuple(get_type_hints(SetsByRow))
NOTHING_STATED = SetsByRow()
"""The default of functions that take metadata besides other keywords."""


def known_metadata(metadata: Mapping[str, Any], call: str) -> dict[str, Any]:
    """Return the metadata that are not None. Raises TypeError for unknown names."""
    if unknown := sorted(set(metadata) - set(METADATA)):
        raise TypeError(f"{call}: no such argument: {', '.join(unknown)}. Sets are stated by {', '.join(METADATA)}.")
    return {name: value for name, value in metadata.items() if value is not None}


def takes_metadata(function: F) -> F:
    """Return the function with its ``**metadata`` replaced by named, documented arguments.

    The names are those of the TypedDict in the annotation, ``**metadata: Unpack[NoiseByRow]``. `inspect.signature`,
    which metadata routing reads, and `help` show one argument for each, None by default. The body receives the metadata
    that are not None. A function that passes on other keywords receives the metadata in one argument:
    ``*, metadata: SetsByRow = NOTHING_STATED, **params``.

    In the docstring, an entry ``**metadata`` without a description is replaced by the entries of the TypedDict. One
    with a description becomes ``X_std, X_cov, X_factor : array-like, default=None`` with this description.
    """
    hint = get_type_hints(function)["metadata"]
    kind = get_args(hint)[0] if get_args(hint) else hint
    names = tuple(get_type_hints(kind))
    own = inspect.signature(function)
    is_open = own.parameters["metadata"].kind is inspect.Parameter.KEYWORD_ONLY
    signature = _stating(own, names)
    known = set(signature.parameters)

    @wraps(function)
    def stating(*args: Any, **options: Any) -> Any:
        if not is_open and not options.keys() <= known:
            raise TypeError(_unknown(function, args, options.keys() - known, names))
        given = {name: options.pop(name) for name in names if name in options}
        stated = {name: value for name, value in given.items() if value is not None}
        return function(*args, **({"metadata": stated} if is_open else stated), **options)

    stating.__signature__ = signature  # type: ignore[attr-defined]
    stating.__doc__ = _documented(function.__doc__, kind, names)
    return stating  # type: ignore[return-value]


def _stating(signature: inspect.Signature, names: tuple[str, ...]) -> inspect.Signature:
    """Return a signature with one argument for each name instead of the metadata, before all other keywords."""
    own = [part for part in signature.parameters.values() if part.name != "metadata"]
    stated = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any") for name in names]
    by_name = [part for part in own if part.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)]
    by_place = [part for part in own if part not in by_name]
    return signature.replace(parameters=[*by_place, *stated, *by_name])


def _unknown(function: Callable[..., Any], args: tuple[Any, ...], unknown: set[str], names: tuple[str, ...]) -> str:
    """Return the error message for unknown arguments."""
    is_method = "." in function.__qualname__ and len(args) > 0
    call = f"{type(args[0]).__name__}.{function.__name__}" if is_method else function.__name__
    return (
        f"{call}: no such argument: {', '.join(sorted(unknown))}. What differs by row is stated by {', '.join(names)}."
    )


def _documented(doc: str | None, kind: type, names: tuple[str, ...]) -> str | None:
    """Return a docstring with the entry ``**metadata`` filled in."""
    entry = re.search(r"^( *)\*\*metadata\n((?:\1 +.*\n|\n(?=\1 ))*)", doc or "", re.MULTILINE)
    if doc is None or entry is None:
        return doc
    indent, description = entry.groups()
    if description:
        text = f"{indent}{', '.join(names)} : array-like, default=None\n{description}"
    else:
        shared = (inspect.getdoc(kind) or "").partition("\n\n")[2]
        text = "".join(f"{indent}{line}\n" for line in shared.splitlines())
    return doc[: entry.start()] + text + doc[entry.end() :]
