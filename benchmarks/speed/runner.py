"""Runs cases: ways take turns, CPU time of the process, medians with their spread; and renders what was measured."""

import ctypes
import json
import time
import traceback
import warnings
from pathlib import Path
from textwrap import fill

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from tables import environment, rule, timed, write

LONG_ENOUGH = 0.05
"""CPU seconds that a timing takes at least: shorter work is repeated within it."""
SLOW = 20.0
"""CPU seconds from which on one run is enough."""
HEAD = "| data | way | CPU seconds | from - to | of ours | reached |"


def measured(case, *, rounds, is_quick=False, is_smoke=False):
    """Return what is known of each way of a case after they have taken turns."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = case.data(is_smoke)
        ways = [way for way in case.ways(data) if not ((is_quick and way.is_slow) or (is_smoke and way.takes))]
        found = {way.name: _first(way) for way in ways}
        for _ in range(rounds):
            for way in ways:
                record = found[way.name]
                if not way.is_slow and record["seconds"][0] < SLOW:
                    record["seconds"].append(_seconds(way, record["repeats"]))
        for way in ways:
            record = found[way.name]
            # the first run pays for what only first runs do
            kept = record["seconds"][1:] or record["seconds"]
            record["seconds"] = [float(np.median(kept)), min(kept), max(kept)]
            if case.has_memory and (extra := peak_of(way.run)) is not None:
                told = f"peak memory {extra / size_of(data.X):.1f} times the data"
                record["reached"] = ", ".join(filter(None, [record["reached"], told]))
    return found


def _first(way):
    seconds, result = timed(way.run)
    seconds = seconds if way.takes is None else way.takes(result)
    repeats = 1 if way.takes else max(1, int(np.ceil(LONG_ENOUGH / max(seconds, 1e-6))))
    return {"seconds": [seconds], "repeats": min(repeats, 1000), "reached": way.reached(result)}


def _seconds(way, repeats):
    if way.takes is not None:
        return way.takes(way.run())
    return timed(lambda: [way.run() for _ in range(repeats)])[0] / repeats


def size_of(X):
    """Return the bytes of a matrix."""
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sparse.issparse(X) else X.nbytes


def peak_of(run):
    """Return by how many bytes the memory of the process grows at most meanwhile, None where the system does not say."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what is free already would hide what is asked for
        reset.write_text("5")
    except (AttributeError, OSError):
        return None
    before = _memory("VmRSS")
    run()
    return max(_memory("VmHWM") - before, 0)


def _memory(name):
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return 1024 * int(line.split()[1])


def run(sections, store, *, words=(), is_quick=False, rounds=5, note=""):
    """Run the cases whose section or name has one of the words, all without any; keep what is found in a file of JSON.

    Return what is known of all cases, and the names of those that failed, whose old figures stay.
    """
    known = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    begun, failed = time.process_time(), []
    for key, section in sections.items():
        for case in section.cases:
            label = f"{key}: {case.name}"
            if (is_quick and not case.is_quick) or (words and not any(word in label for word in words)):
                continue
            print(f"\n{label}", flush=True)
            try:
                found = measured(case, rounds=rounds, is_quick=is_quick)
            except Exception:
                traceback.print_exc()
                failed.append(label)
                continue
            known[label] = {"ways": found, "environment": environment(), "note": note and f". {note}"}
            print(*lines_of(case.name, found), sep="\n")
            print(f"so far {time.process_time() - begun:.0f} s of CPU", flush=True)
            write(store, json.dumps(known, indent=1) + "\n")
    return known, failed


def lines_of(name, found):
    """Return the lines of a table: one for each way."""
    lines, first = [], next(iter(found.values()))["seconds"][0]
    for way, record in found.items():
        seconds, low, high = record["seconds"]
        spread = f"{shown(low)} - {shown(high)}"
        lines.append(
            f"| {name} | {way} | {shown(seconds)} | {spread} | {shown(seconds / first)} | {record['reached']} |"
        )
        name = ""
    return lines


def shown(number):
    """Return a number in three digits."""
    return f"{number:.{max(0, 2 - int(np.floor(np.log10(max(number, 1e-9)))))}f}"


def page(sections, known, about):
    """Return what was measured as a page of Markdown; each section names the versions that its cases ran with."""
    parts = [about]
    for key, section in sections.items():
        records = {case.name: known.get(f"{key}: {case.name}") for case in section.cases}
        records = {name: record for name, record in records.items() if record}
        if not records:
            continue
        made = sorted({record["environment"] + record["note"] for record in records.values()})
        lines = [line for name, record in records.items() for line in lines_of(name, record["ways"])]
        parts.append(
            "\n".join([f"## {section.title}\n", f"{fill(section.about, 128)}\n", *made, "", HEAD, rule(HEAD), *lines])
        )
    return "\n\n".join(parts) + "\n"
