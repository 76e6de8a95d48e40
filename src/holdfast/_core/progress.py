"""Progress of long work, through the logger "holdfast"."""

from __future__ import annotations

import logging
import sys

from holdfast._core.solver import Report, silent

logger = logging.getLogger("holdfast")


def reporter(verbose: int) -> Report:
    """Return a function that logs a line: at INFO and to the screen when `verbose`, nowhere otherwise."""
    if not verbose:
        return silent
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("[holdfast] %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    return logger.info
