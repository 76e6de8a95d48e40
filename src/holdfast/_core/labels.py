"""Checks that labels of rows and columns agree, as errors are matched to rows and columns by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast._core.parameters import Parameters

SQUARE = ("cov", "shape")
"""Parameters that are matrices with features along both axes."""


def known_columns(X: Any, model: Any = None) -> tuple[list[Any] | None, str]:
    """Return the column names of X, else those a model was fitted with, else None; and the expression for them."""
    for owner, name, spelled in (
        (X, "columns", "X.columns"),
        (model, "feature_names_in_", "model.feature_names_in_"),
        (model, "columns_in_", "model.columns_in_"),
    ):
        if (found := getattr(owner, name, None)) is not None:
            return list(found), spelled
    return None, ""


def column_name(X: Any, j: Any) -> Any:
    """Return the name of a column of X, or its index if there are no names."""
    return list(X.columns)[j] if hasattr(X, "columns") else int(j)


def check_columns(X: Any, metadata: Mapping[str, Any], model: Any = None) -> None:
    """Raise ValueError if frames of values and errors have different row or column labels, as position decides.

    If X is an array, the columns are those that `model` was fitted with.
    """
    ours, spelled = known_columns(X, model)
    for name, value in metadata.items():
        check_index(X, value, name)
        if name != "X_radius" and hasattr(value, "columns"):  # its column's name has no meaning
            _check_same(ours, list(value.columns), name, "columns", spelled, f"{name}[list({spelled})]")


def check_features(X: Any, stated: Mapping[str, Any], model: Any = None) -> None:
    """Raise ValueError if numbers by feature, also in parameters of sets, have other labels than the columns of X.

    If X is an array, the columns are those that `model` was fitted with.
    """
    ours, spelled = known_columns(X, model)
    for name, value in stated.items():
        if isinstance(value, Parameters):
            kind = type(value).__name__
            check_features(X, {f"{kind}({key}": part for key, part in value.stated_by_feature().items()}, model)
        key = name.rpartition("(")[2]
        subject = name if key == name else f"{name}=...): it"
        cure = f"{key}.loc[{', '.join([spelled] * (1 + (key in SQUARE)))}]"
        if hasattr(value, "iloc"):
            _check_same(ours, list(value.index), subject, "labels", spelled, cure)
        if key in SQUARE and hasattr(value, "columns"):
            _check_same(ours, list(value.columns), subject, "columns", spelled, cure)


def _check_same(ours: list[Any] | None, theirs: list[Any], subject: str, what: str, spelled: str, cure: str) -> None:
    if ours is None or ours == theirs:
        return
    owner = "X has" if spelled == "X.columns" else "the model was fitted with"
    is_permuted = sorted(map(repr, ours)) == sorted(map(repr, theirs))
    advice = f"order, {cure}" if is_permuted else f"{what}, or an array, .to_numpy(), where the order is the same"
    raise ValueError(
        f"{subject} has the {what} {theirs!r:.200}, {owner} {ours!r:.200}. They would be matched by position. Give both the "
        f"same {advice}."
    )


def check_index(X: Any, value: Any, name: str, of: str = "X") -> None:
    """Raise ValueError if two pandas objects, named `of` and `name`, have different row labels or another row order."""
    if not (hasattr(X, "iloc") and hasattr(value, "iloc")) or X.index.equals(value.index):
        return
    if X.index.is_unique and value.index.is_unique and set(X.index) == set(value.index):
        raise ValueError(
            f"{name} has the rows of {of} in another order: they would be matched by position. Give {name}.loc[{of}.index]."
        )
    raise ValueError(
        f"{name} has another index than {of}: {value.index[:3].tolist()} ... and {X.index[:3].tolist()} ... . Give both the "
        f"same index, or {name}.to_numpy() where row i of one is row i of the other."
    )
