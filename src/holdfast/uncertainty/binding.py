"""Bind the sets that users state to rows, with an error where a set and the metadata do not fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast._core.row_sets import RowSets
from holdfast._core.uncertainty import UncertaintySet


def bound_sets(
    uncertainty: Any, X: Any, metadata: Mapping[str, Any], name: str
) -> tuple[RowSets | None, RowSets | None]:
    """Return the set to maximise over and the one to average over, bound to the rows of X; None for either if absent.

    `name` is the class that asks; error messages quote it.
    """
    if uncertainty is None:
        if metadata:
            raise ValueError(
                f"{name}(uncertainty=None), {next(iter(metadata))}=...: say what it means. Box() takes X_std as "
                "half-widths, Ellipsoid() as standard deviations, GaussianNoise() averages over it, IntervalBox() takes "
                "X_lower and X_upper, Ball() X_radius."
            )
        return None, None
    if not isinstance(uncertainty, UncertaintySet):
        raise ValueError(
            f"{name}(uncertainty={uncertainty!r:.80}): give a set, such as Ball(0.3), Box(0.1), "
            "Box(half_widths=[...]), Ellipsoid(shape=...), GaussianNoise(0.2), or a sum of sets; or None."
        )
    return uncertainty.split(X, metadata)


def refuse_of_training(uncertainty: Any, name: str) -> None:
    """Raise ValueError for a noise that moves the rows; for classifiers that train on the rows as given."""
    if isinstance(uncertainty, UncertaintySet) and uncertainty.is_of_training:
        raise ValueError(
            f"{name}(uncertainty={uncertainty!r}): entries that go missing at random move the rows too, which this classifier "
            "does not follow. Use GaussianRobustClassifier(DropoutNoise(share)), or FeatureDeletion for the worst."
        )
