"""README and docs: links lead somewhere, no page is lost, and the calls that they show can be made."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[1]
README, INDEX = ROOT / "README.md", ROOT / "docs" / "index.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
GUIDES = [page for page in PAGES if page.name not in ("index.md", "printed_bounds.md")]
PACKAGES = [
    "uncertainty",
    "ambiguity",
    "estimators",
    "pipeline",
    "features",
    "evaluate",
    "display",
    "datasets",
    "losses",
    "solvers",
    "experiments",
]
MODULES = [importlib.import_module(f"holdfast.{package}") for package in PACKAGES]
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}
OTHERS = {
    "GridSearchCV",
    "HistGradientBoostingClassifier",
    "LogisticRegression",
    "cross_val_score",
    "help",
    "fit",
    "carrying_rows",
}
every_page = pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
every_guide = pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)


def text_of(page):
    return page.read_text(encoding="utf-8")


def links_of(page):
    """Return (path, anchor) of every link and picture that stays in the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text_of(page))
    return [target.partition("#")[::2] for target in targets if "://" not in target]


def anchors_of(page):
    """Return the anchors that headings get on GitHub."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page):
    for path, anchor in links_of(page):
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page.name} links to {path}"
        assert not anchor or anchor in anchors_of(target), f"{page.name} links to {path}#{anchor}"


def test_every_page_is_linked_from_the_index_and_every_guide_from_the_readme():
    linked, front = ({path for path, _ in links_of(page)} for page in (INDEX, README))
    assert {page.name for page in PAGES} - linked == {"index.md"}
    assert {f"docs/{page.name}" for page in [*GUIDES, INDEX]} <= front


def test_the_front_page_is_short_and_shows_one_picture():
    assert len(text_of(README).splitlines()) <= 130
    assert len(re.findall(r"!\[", text_of(README))) == 1


@every_guide
def test_every_guide_is_a_page_long_and_has_an_example_that_runs(page):
    assert 60 <= len(text_of(page).splitlines()) <= 150
    assert ">>> " in text_of(page)


def test_the_index_names_the_classifiers_that_lack_what_the_others_have():
    kinds = {name for name in holdfast.__all__ if name.endswith(("Classifier", "ClassifierCV", "Perceptron"))}
    own = kinds - {"ModeratedClassifier"}  # which has the parameters of its classifier
    no_rows = {name for name in own if "sample_weight" not in inspect.signature(PUBLIC[name].fit).parameters}
    no_classes = {name for name in own if "class_weight" not in inspect.signature(PUBLIC[name]).parameters}
    [told] = re.findall(
        r"`sample_weight`, except in (.*?); `class_weight`, except in (.*?)\.", text_of(INDEX), re.DOTALL
    )
    assert [set(re.findall(r"`(\w+)`", names)) for names in told] == [no_rows, no_classes]


@every_guide
def test_every_guide_links_the_index(page):
    assert "index.md" in {path for path, _ in links_of(page)}


@every_page
def test_every_picture_is_one_that_a_script_makes(page):
    scripts = "".join(
        text_of(script) for folder in ("examples", "benchmarks") for script in (ROOT / folder).glob("*.py")
    )
    for path in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text_of(page)):
        assert f'"{Path(path).name}"' in scripts


def calls_in(page):
    """Return the calls of the code in backquotes, as syntax trees."""
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text_of(page)):
        try:
            tree = ast.parse(code, mode="eval")
        except SyntaxError:  # no Python, such as `make test`
            continue
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))


@every_page
def test_calls_in_the_text_name_public_things_with_parameters_that_they_have(page):
    for call in calls_in(page):
        name = call.func.id
        assert name in PUBLIC or name in OTHERS, f"{page.name} speaks of {name}, which is not public"
        if name in PUBLIC:
            given = dict.fromkeys(keyword.arg for keyword in call.keywords)
            inspect.signature(PUBLIC[name]).bind_partial(*call.args, **given)  # a TypeError names what it does not take


@every_page
def test_names_with_their_package_exist(page):
    for package, name in re.findall(r"`holdfast\.(\w+)\.(\w+)`", text_of(page)):
        assert hasattr(importlib.import_module(f"holdfast.{package}"), name)
    for package in re.findall(r"`holdfast\.(\w+)`", text_of(page)):
        importlib.import_module(f"holdfast.{package}")
