"""The notebooks run from top to bottom, show a picture each, and store small outputs that name no machine."""

from __future__ import annotations

import importlib.util
import json
import resource
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from document_blocks import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 200 * 1024  # bytes
MOST_SECONDS = 120  # processor time of all notebooks together
spent: dict[str, float] = {}  # by notebook


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    specification = importlib.util.spec_from_file_location("run_notebooks", ROOT / "notebooks" / "run.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def outputs(notebook: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for cell in notebook["cells"] for one in cell.get("outputs", []) if one["output_type"] == kind]


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def printed(notebook: dict[str, Any]) -> str:
    return "".join("".join(one["text"]) for one in outputs(notebook, "stream"))


def test_there_are_four_notebooks() -> None:
    assert [path.stem[0] for path in NOTEBOOKS] == ["1", "2", "3", "4"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws(
    path: Path, runner: ModuleType, one_thread: None, raw_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = cpu_seconds()
    fresh, stored = runner.run_notebook(path), json.loads(path.read_text())
    spent[path.stem] = cpu_seconds() - before
    assert sum(spent.values()) < MOST_SECONDS, spent
    assert outputs(fresh, "display_data")
    assert len(outputs(fresh, "display_data")) == len(outputs(stored, "display_data"))
    levels = [line for line in printed(stored).splitlines() if line.startswith(("level:", "verdict:"))]
    assert [line for line in printed(fresh).splitlines() if line.startswith(("level:", "verdict:"))] == levels


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_is_whole_small_and_plain(path: Path) -> None:
    text = path.read_text()
    notebook = json.loads(text)
    assert len(text) < LARGEST
    assert (notebook["nbformat"], notebook["cells"][0]["cell_type"]) == (4, "markdown")
    assert "".join(notebook["cells"][0]["source"]).startswith(f"# {path.stem[0]}. ")
    assert "Error" not in printed(notebook)
    assert str(ROOT.parent) not in text
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(line.startswith(("%", "!")) for source in code for line in source.splitlines())
    assert all(cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code")


def test_notebooks_are_spelled_with_the_settings_of_the_project(tmp_path: Path) -> None:
    """`make lint` reads their cells and not the pictures in them. So does this test, with a fault in a cell."""
    command = [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml")]
    assert subprocess.run([*command, *map(str, NOTEBOOKS)], capture_output=True, text=True).stdout == ""
    notebook = json.loads(NOTEBOOKS[0].read_text())
    notebook["cells"][1]["source"].append("\n# it is t" + "eh model")
    faulty = tmp_path / "faulty.ipynb"
    faulty.write_text(json.dumps(notebook, indent=1))
    ran = subprocess.run([*command, str(faulty)], capture_output=True, text=True)
    assert ran.returncode != 0
    assert "faulty.ipynb" in ran.stdout


def test_the_notebooks_show_that_a_no_op_is_caught() -> None:
    text = printed(json.loads(NOTEBOOKS[2].read_text()))
    assert "verdict: passed" in text
    assert "verdict: refuted" in text
