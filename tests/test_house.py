"""Few files in the package root, small files and functions, no import of the root, documents that are right."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from planted_faults import read_faults

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "graphforget"
SOURCES = sorted(PACKAGE.rglob("*.py"))
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern))

MOST_LINES, MOST_FUNCTION_LINES, WIDTH = 350, 50, 120
REASON = re.compile(r"# Longer than \d+ lines because ")


def test_the_package_root_holds_few_files() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 10


def test_only_the_upper_rooms_import_the_package_root() -> None:
    """The root imports lazily, so an import of it could hide any other from the import rules."""
    for path in SOURCES:
        if path.relative_to(PACKAGE).parts[0] in ("cli", "experiments"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert "graphforget" not in names, path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_small_or_say_why_not(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES or REASON.search("\n".join(lines[:5]))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            is_long = (node.end_lineno or 0) - node.lineno + 1 > MOST_FUNCTION_LINES
            assert not is_long or REASON.search(lines[start - 2]), f"{node.name} is long and gives no reason"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_wrap(path: Path) -> None:
    """Tables, code and addresses cannot be wrapped."""
    in_code = False
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        in_code ^= line.lstrip().startswith("```")
        wraps = not (in_code or line.startswith(("|", "    ", "```")) or " " not in line.strip())
        assert not wraps or len(line) <= WIDTH, f"line {number} has {len(line)} characters"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), target


def test_the_design_names_files_that_exist() -> None:
    design = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`([a-z_]+/[a-z_0-9/]*(?:\.py)?|[a-z_]+\.py)`", design))
    assert len(named) > 40
    places = (PACKAGE, ROOT)
    missing = [name for name in sorted(named) if not any((place / name).exists() for place in places)]
    assert missing == []


def test_every_question_has_an_answer() -> None:
    """The rooms of the package all stand in the design."""
    design = (ROOT / "docs" / "design.md").read_text()
    rooms = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert [room for room in rooms if f"`{room}/" not in design] == []


def test_every_planted_fault_can_be_planted() -> None:
    """`python tests/planted_faults.py` shows that the tests catch them."""
    faults = read_faults()
    assert len(faults) >= 30
    for fault in faults:
        assert fault.planted((PACKAGE / fault.file).read_text())
        assert all((ROOT / "tests" / name).exists() for name in fault.tests.split())
