"""Every table and figure names its command, the register knows it, and a change of its settings is reported."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from document_blocks import ROOT


@pytest.fixture
def provenance() -> ModuleType:
    specification = importlib.util.spec_from_file_location("provenance", ROOT / "docs" / "site" / "provenance.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_register_and_its_page_hold_all_commands_of_the_documents(provenance: ModuleType) -> None:
    """Run `python docs/site/provenance.py --update` after a command was added to a page."""
    register = provenance.read_register()
    assert set(register) == set(provenance.commands_in_documents())
    assert provenance.provenance_page(register) == (ROOT / "docs" / "provenance.md").read_text()


def test_every_command_can_be_run(provenance: ModuleType) -> None:
    commands = provenance.commands_in_documents()
    assert len(commands) > 20
    assert [name for name in commands if name != provenance.REPRODUCE and not (ROOT / name.split()[1]).is_file()] == []


def test_a_changed_setting_is_reported(provenance: ModuleType, tmp_path: Path) -> None:
    command = "python benchmarks/noise.py"
    for name in (command.split()[1], *provenance.SETTINGS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    assert provenance.settings_hash(command, root=tmp_path) == provenance.settings_hash(command)
    with (tmp_path / provenance.SETTINGS[0]).open("a") as file:
        file.write("# another default\n")
    assert provenance.settings_hash(command, root=tmp_path) != provenance.settings_hash(command)


def test_a_warning_names_the_page_and_the_command(provenance: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    register = provenance.read_register()
    old = {"python benchmarks/noise.py": {"version": "0.0.1", "hash": "0" * 16}}
    monkeypatch.setattr(provenance, "read_register", lambda: register | old)
    lines = [line for line in provenance.warnings() if "benchmarks/noise.py" in line]
    assert len(lines) == 1
    assert "docs/" in lines[0]
    assert "have changed since version 0.0.1 made it" in lines[0]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_a_figure_has_its_command_in_its_caption(page: str) -> None:
    """A screenshot of the service is made by a test, which is named as well."""
    paragraphs = re.split(r"\n\s*\n", (ROOT / page).read_text())
    for number, paragraph in enumerate(paragraphs):
        if re.search(r"!\[[^\]]*\]\(", paragraph):
            near = " ".join(" ".join(paragraphs[max(0, number - 2) : number + 3]).split())
            assert re.search(r"`[^`]*(python|graphforget|pytest) [^`]+`", near), f"{page}: {paragraph}"
