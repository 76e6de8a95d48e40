"""Plant faults in copies of the code and expect the tests to notice: `make mutants`, or `python tests/mutants.py WORD ...`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 2
"""Faults tried side by side."""
LIMIT, LIMIT_OF_ALL = 90, 900
"""Seconds for the tests of one fault, and for all of them without a fault."""
MISPLACED, NOT_IMPORTABLE = 98, 99
START = f"""
import sys, traceback
from pathlib import Path
try:
    import holdfast
except Exception:
    traceback.print_exc()
    sys.exit({NOT_IMPORTABLE})
if not Path(holdfast.__file__).resolve().is_relative_to(Path(sys.argv[1]).resolve()):
    print("imported", holdfast.__file__, "in place of the copy")
    sys.exit({MISPLACED})
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""
WORDS = {0: "SURVIVED", 1: "caught", None: "hung"}
"""What an exit status of pytest says about a fault; any other one says that the fault could not be tried."""


@dataclass(frozen=True)
class Fault:
    """A text in a file of src/holdfast, what it becomes, why, and the tests that must fail then."""

    reason: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def misfit(self, source: Path) -> str:
        """Return why the fault cannot be planted in the code as it is, nothing if it can."""
        text = (source / "holdfast" / self.file).read_text(encoding="utf-8")
        if (times := text.count(self.find)) != 1:
            return f"{self.file}: {self.find!r} occurs {times} times, not once."
        try:
            compile(text.replace(self.find, self.replace), self.file, "exec")
        except SyntaxError as error:
            return f"{self.file}: with {self.replace!r} it is no Python any more ({error})."
        return ""

    def plant(self, source: Path) -> None:
        """Put the fault into a copy of the code."""
        path = source / "holdfast" / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.find, self.replace), encoding="utf-8")


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended; `status` is None where it had to be stopped."""

    status: int | None
    output: str
    seconds: float

    @property
    def failed(self) -> str:
        """The name of the first test that failed."""
        names = re.findall(r"^(?:FAILED|ERROR) \S*?::(.*?)(?: - |$)", self.output, re.MULTILINE)
        return names[0] if names else ""


def faults() -> list[Fault]:
    """Return all faults of tests/mutants.toml."""
    listed = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))
    return [Fault(**entry) for entry in listed["fault"]]


def copy_source(source: Path, target: Path) -> Path:
    """Return `target`, a copy of the package in `source` with what numba has compiled, but no bytecode."""
    shutil.copytree(source / "holdfast", target / "holdfast", ignore=shutil.ignore_patterns("*.pyc"))
    return target


def run_tests(source: Path, tests: list[str], *options: str, limit: float = LIMIT) -> Outcome:
    """Run tests of this repository against the package in `source`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = ours | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", START, str(source), "-q", "-p", "no:cacheprovider", *options, *tests]
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            timeout=limit,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, "", time.monotonic() - began)
    return Outcome(ended.returncode, ended.stdout, time.monotonic() - began)


def tried(fault: Fault, original: Path) -> Outcome:
    """Return what the fault's tests say of a copy of `original` that has the fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_source(original, Path(folder))
        fault.plant(copy)
        return run_tests(copy, fault.tests, "-x")


def main(words: list[str]) -> int:
    """Try the faults whose file or reason contains one of the words, all without any; return 1 if one survives."""
    chosen = [fault for fault in faults() if not words or any(word in fault.file + fault.reason for word in words)]
    if not chosen:
        print(f"No fault has {' or '.join(map(repr, words))} in its file or reason.")
        return 1
    if misfits := [problem for fault in chosen if (problem := fault.misfit(ROOT / "src"))]:
        print(*misfits, "Adapt them in tests/mutants.toml. Nothing was tried.", sep="\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        original = copy_source(ROOT / "src", Path(folder))
        named = sorted({test for fault in chosen for test in fault.tests})
        healthy = run_tests(original, named, "-n", str(AT_ONCE), limit=LIMIT_OF_ALL)
        if healthy.status != 0:
            print(healthy.output)
            print("These tests must pass before faults are planted. Nothing was tried.")
            return 1
        print(f"{len(named)} tests or files pass without a fault ({healthy.seconds:.0f} s)", flush=True)
        began, seen = time.monotonic(), []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for fault, outcome in zip(chosen, pool.map(lambda fault: tried(fault, original), chosen), strict=True):
                word = WORDS.get(outcome.status, "BROKEN")
                seen.append(word)
                print(f"{word:8} {outcome.seconds:4.0f} s  {fault.file}: {fault.reason}  {outcome.failed}", flush=True)
                if word == "BROKEN":
                    print(outcome.output)
    counts = ", ".join(f"{seen.count(word)} {word.lower()}" for word in dict.fromkeys(seen))
    print(f"{len(chosen)} faults: {counts} ({time.monotonic() - began:.0f} s)")
    return int("SURVIVED" in seen or "BROKEN" in seen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
