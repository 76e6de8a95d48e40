"""Cases that are timed run, on a few rows, and what is measured makes a page."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(FOLDER))
try:
    program, runner, parts, paths = (
        importlib.import_module(name) for name in ("run", "speed.runner", "speed.case", "speed.paths")
    )
finally:
    sys.path.remove(str(FOLDER))


def cases():
    """Yield every case; of those that do the same with other data only the first by default."""
    seen = set()
    for key, section in program.SECTIONS.items():
        for case in section.cases:
            does = key, getattr(case.ways, "func", case.ways).__qualname__
            yield pytest.param(case, id=f"{key}, {case.name}", marks=[pytest.mark.slow] if does in seen else [])
            seen.add(does)


@pytest.fixture
def short(monkeypatch):
    """Few tolerances and few sizes."""
    monkeypatch.setattr(parts, "TOLERANCES", np.array([1e-2, 1e-6]))
    monkeypatch.setattr(paths, "N_SIZES", 3)


@pytest.mark.parametrize("case", list(cases()))
def test_every_case_runs(case, short):
    found = runner.measured(case, rounds=0, is_smoke=True)
    for way, record in found.items():
        median, low, high = record["seconds"]
        assert 0 <= low <= median <= high, way
    lines = runner.lines_of(case.name, found) if found else []  # nothing where processes of their own are timed
    assert len(lines) == len(found)
    assert all(line.count("|") == runner.HEAD.count("|") for line in lines)


def test_every_section_has_a_quick_case_and_names_are_told_apart():
    for key, section in program.SECTIONS.items():
        assert any(case.is_quick for case in section.cases) or not section.cases, key
        names = [case.name for case in section.cases]
        assert len(set(names)) == len(names)


def test_ways_take_turns_and_the_median_is_of_all_rounds_but_the_first():
    turns = []

    def way(name, seconds):
        return parts.Way(name, lambda: turns.append(name) or seconds.pop(0), takes=float)

    ways = [way("ours", [9.0, 1.0, 3.0, 2.0]), way("theirs", [8.0, 4.0, 4.0, 4.0])]
    case = parts.Case("two", lambda is_smoke: parts.Data(np.zeros((2, 2)), np.zeros(2)), lambda data: ways)
    found = runner.measured(case, rounds=3)
    assert turns == ["ours", "theirs"] * 4
    assert found["ours"]["seconds"] == [2.0, 1.0, 3.0]
    assert runner.lines_of("two", found)[1].startswith("|  | theirs | 4.00 | 4.00 - 4.00 | 2.00 |")


def test_a_case_that_fails_is_named_and_loses_no_other(tmp_path, capsys):
    def case(name, run):
        data = parts.Data(np.zeros((2, 2)), np.zeros(2))
        return parts.Case(name, lambda is_smoke: data, lambda data: [parts.Way("ours", run)])

    section = parts.Section("All", "", [case("bad", lambda: 1 / 0), case("good", lambda: 1)])
    known, failed = runner.run({"all": section}, tmp_path / "speed.json", rounds=1)
    assert failed == ["all: bad"]
    assert list(known) == ["all: good"]


def test_a_fit_that_is_not_certified_is_no_timing():
    class Loose:
        gap_ = 0.1

    with pytest.raises(RuntimeError, match="ours: gap"):
        parts.ours("ours", Loose(), None).reached(Loose())


def test_peers_come_as_they_are_and_as_accurate_as_it_takes():
    """The objective is 1 + tol / 10, so that 1e-6 of it is reached at tol = 1e-5."""

    class Theirs:
        def __init__(self, tol=1e-2, max_iter=10):
            self.value = 1 + tol / 10

        def fit(self, X, y):
            return self

    peer = parts.Peer("they", Theirs, lambda fitted, X, y: fitted.value)
    default, accurate = peer.ways(parts.Data(np.zeros((2, 2)), np.zeros(2)))
    assert accurate.name == "they, equally accurate (tol=1e-05)"
    assert default.reached(default.run()) == "excess 1e-03"
    assert accurate.reached(accurate.run()) == "excess 1e-06"


def test_what_is_measured_is_kept_and_makes_a_page(tmp_path, short, capsys):
    for word in ("small: 500 x 10, float32", "small: 500 x 10, float64"):
        program.main(["--only", word, "--rounds", "1", "--note", "A test", "--out", str(tmp_path)])
    text = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert text.count("| 500 x 10, float") == 2
    assert text.count("one thread used. A test\n") == 1
    assert "## Small fits" in text
    assert "## Paths" not in text
