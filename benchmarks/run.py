"""Times everything that is to be fast, and writes benchmarks/speed.md.

`make bench` runs the quick cases, `make bench-full` all. `--only WORD` runs those whose section or name has the word, and
leaves the others on the page as they are.
"""

import argparse
import sys
from pathlib import Path

from speed import fits, other_work, paths, runner, worst_cases
from tables import write

HERE = Path(__file__).parent
SECTIONS = fits.SECTIONS | paths.SECTIONS | worst_cases.SECTIONS | other_work.SECTIONS
ABOUT = """# How long it takes

`python benchmarks/run.py` writes this page; `make bench` runs the quick cases and `make bench-full` all.

Everything runs on one thread, on a common desktop or server processor. Times are CPU seconds of the process: the median over
rounds in which all ways of a case take turns, so that a busy machine disturbs all alike, with the smallest and the largest.
`of ours` is a time over that of the first line of the case. Fits of ours are certified: `gap` is what is then proved of the
objective, recomputed from the data, relative to the optimum. Others appear twice: with their default tolerance, and *equally
accurate*, at the loosest tolerance (of powers of ten) that brings their own objective within 1e-6 of the best that any
tolerance reaches. `excess` is how far above that best they end; after `>` time ran out before a best was known. Kernels have
been compiled beforehand, by `holdfast.compile()`."""


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the quick cases only")
    parser.add_argument("--only", nargs="+", default=(), metavar="WORD", help="cases whose section or name has a word")
    parser.add_argument("--rounds", type=int, help="how often ways take turns after a first time (3 if quick, else 5)")
    parser.add_argument("--note", default="", help="a remark on the machine, which the page repeats")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="the folder that the page and its numbers are written to"
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    options = parser.parse_args(arguments)
    if options.list:
        for key, section in SECTIONS.items():
            print(*(f"{key}: {case.name}{' (quick)' * case.is_quick}" for case in section.cases), sep="\n")
        return None
    rounds = options.rounds or (3 if options.quick else 5)
    choice = {"words": options.only, "is_quick": options.quick, "rounds": rounds, "note": options.note}
    known, failed = runner.run(SECTIONS, options.out / "speed.json", **choice)
    write(options.out / "speed.md", runner.page(SECTIONS, known, ABOUT))
    return "\n".join(["These cases failed:", *failed]) if failed else None


if __name__ == "__main__":
    sys.exit(main())
