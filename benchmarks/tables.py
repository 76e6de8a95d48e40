"""What scripts that write tables share: versions, CPU time, and tables that are printed as they grow."""

import os
import platform
import time

import numpy as np
import scipy
import sklearn

import holdfast
from holdfast._core import compiled


def environment():
    """Return versions and the kind of machine, in a line."""
    numba = f", numba {__import__('numba').__version__}" if compiled.is_installed() else ", no numba"
    return (
        f"holdfast {holdfast.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}{numba}; {platform.machine()}, {os.cpu_count()} cores, one thread used"
    )


def timed(function):
    """Return CPU seconds of the process, and the result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def rule(head):
    """Return the line below a table's head."""
    return "|" + " --- |" * (head.count("|") - 1)


def table(head, rows):
    """Return a table, printed as it grows."""
    lines = [head, rule(head)]
    print(*lines, sep="\n", flush=True)
    for line in rows:
        lines.append(line)
        print(line, flush=True)
    return "\n".join(lines)


def write(path, text):
    """Write a page in one go, so that no half of one is ever left."""
    path.with_suffix(".tmp").write_text(text, encoding="utf-8")
    path.with_suffix(".tmp").replace(path)
