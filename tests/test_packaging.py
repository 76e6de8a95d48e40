"""What is installed: extras that code or tests use, and for `make test` what its tests need."""

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MODULES = {"scikit-learn": "sklearn", "pytest-xdist": "xdist"}


def named(requirements):
    """Return the modules that requirements bring."""
    names = [re.match(r"[\w-]+", text)[0] for text in requirements if isinstance(text, str)]
    return {MODULES.get(name, name) for name in names}


@cache
def imported_by(folder):
    """Return the modules of other packages that the files of a folder import."""
    lines = re.compile(r"^\s*(?:import (\w+)[\w.]*(?: as \w+)?(?:  #.*)?$|from (\w+)[\w.]* import )", re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py"))
    found = {one or other for text in texts for one, other in lines.findall(text)}
    return found - set(sys.stdlib_module_names) - {"holdfast"}


def imported(*folders):
    return set().union(*map(imported_by, folders))


RUNTIME = named(PROJECT["project"]["dependencies"])
GROUPS = PROJECT["dependency-groups"]
EXTRAS = {name: named(wanted) for name, wanted in PROJECT["project"]["optional-dependencies"].items()}


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"all"}))
def test_every_extra_is_used(extra):
    assert EXTRAS[extra] <= imported("src", "tests")


def test_all_is_all_extras():
    [text] = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(re.findall(r"\w+", text)) - {"holdfast"} == set(EXTRAS) - {"all"}


def test_the_package_imports_what_it_depends_on_and_extras_alone():
    assert imported("src") <= RUNTIME | set().union(*EXTRAS.values())
    assert imported("src") >= RUNTIME


def test_tests_are_given_what_they_import_and_no_more():
    given, wanted = named(GROUPS["test"]), imported("src", "tests", "examples")
    assert wanted <= given | RUNTIME
    assert given <= wanted | {"xdist"}


def test_linters_are_not_installed_for_the_tests():
    assert {"include-group": "test"} in GROUPS["dev"]
    assert {"ruff", "mypy", "import-linter"} == {name.split(">")[0] for name in GROUPS["dev"] if isinstance(name, str)}
    for target, needed in (
        ("test", "test"),
        ("test-slow", "test"),
        ("mutants", "test"),
        ("lint", "dev"),
        ("format", "dev"),
    ):
        assert re.search(rf"^{target}: \.venv/{needed}$", MAKEFILE, re.MULTILINE)
    for group in ("test", "dev"):
        assert re.search(rf"^\.venv/{group}: .*\n.*--group {group}$", MAKEFILE, re.MULTILINE)
