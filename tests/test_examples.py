"""Every example runs, leaves whole files, and shows what it claims to show."""

import re
import runpy
from pathlib import Path

import pytest
from matplotlib.image import imread

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


def run(example, folder):
    """Run an example in its fast mode, two splits, into a folder that does not exist yet; return the folder."""
    runpy.run_path(str(example))["main"](folder / "new" / "folder", n_splits=2)
    return folder / "new" / "folder"


def numbers(text):
    """Return {(row, column): number} of the Markdown table in `text`, standard errors dropped."""
    lines = [re.split(r"\s*\|\s*", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = lines
    cells = {(row[0], name): cell.split()[0] for row in rows for name, cell in zip(header[1:], row[1:], strict=True)}
    return {where: float(cell) for where, cell in cells.items() if cell != "-"}


DEAR = {"plot_robust_fourier": [pytest.mark.slow]}


@pytest.mark.parametrize(
    "example", [pytest.param(path, marks=DEAR.get(path.stem, ()), id=path.stem) for path in EXAMPLES]
)
def test_every_example_runs_and_leaves_whole_files(example, tmp_path):
    folder = run(example, tmp_path)
    assert {path.suffix for path in folder.iterdir()} == {".md", ".png"}  # nothing temporary is left
    for picture in folder.glob("*.png"):
        height, width, _ = imread(picture).shape
        assert width > height > 300
    for text in folder.glob("*.md"):
        assert text.read_text(encoding="utf-8").endswith("\n")


def test_the_short_script_goes_from_a_mixed_table_to_what_to_measure_next(capsys):
    script = EXAMPLES[0].parent / "missing_entries.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 25
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "certain all the same" in said
    assert "measure next:" in said


def test_the_demo_shows_what_the_readme_says_of_error_bars(tmp_path):
    [example] = [path for path in EXAMPLES if path.stem == "plot_do_error_bars_help"]
    found = numbers((run(example, tmp_path) / "do_error_bars_help.md").read_text(encoding="utf-8"))
    plain, stated, prepared = "LogisticRegression", "holdfast, noise=1", "holdfast, noise=4"
    assert found[prepared, "at 4x"] > found[plain, "at 4x"] + 2
    assert found[prepared, "at 4x"] > found[stated, "at 4x"]
    assert abs(found[stated, "at 1x"] - found[plain, "at 1x"]) < 2
    assert found[prepared, "flips 4x"] < found[stated, "flips 4x"] < found[plain, "flips 4x"]
    boosting, told = "HistGradientBoosting, copies at 4x", "holdfast, NoiseAwareClassifier"
    for model in (boosting, prepared):  # one model that is told of the noise serves noisy rows and clean ones
        assert found[told, "at 4x"] > found[model, "at 4x"]
        assert found[told, "clean"] > found[model, "clean"] + 1
    for model in (plain, stated, prepared):
        assert 0 < found[model, "flips 1x"] < found[model, "flips 4x"] < 50
        assert 0 < found[model, "certain 4x"] < found[model, "certain 1x"] < 100
