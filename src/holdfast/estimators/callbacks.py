"""scikit-learn's callbacks (1.9 and later), which are told of every step of a fit."""

from __future__ import annotations

from typing import Any

from holdfast._core.solver import Report

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks as with_callbacks
except ImportError:  # scikit-learn < 1.9 has none

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: this version of scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method."""
        return method


def announced(estimator: Any, report: Report, X: Any, y: Any) -> tuple[Report, Any]:
    """Return a `report` that also tells the estimator's callbacks of every line, and a function to call at the end of fit."""
    is_watched = "_skl_callbacks" in vars(estimator) or "_parent_callback_ctx" in vars(estimator)
    if not is_watched or not hasattr(estimator, "_init_callback_context"):
        return report, lambda: None
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def finished() -> None:
        context.call_on_fit_task_end(estimator=estimator, X=X, y=y)

    if not getattr(estimator, "_skl_callbacks", None):
        return report, finished

    def step(message: str) -> None:
        report(message)
        task = context.subcontext(task_name=message)
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        task.call_on_fit_task_end(estimator=estimator, X=X, y=y)

    return step, finished
