"""Every table and figure names its command, the register knows it, and a change of its settings is reported."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from document_blocks import ROOT
from graphforget.models.registry import MODELS

PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:python (?:benchmarks|docs|notebooks)/|graphforget reproduce |pytest )\S+")
NUMBER = re.compile(r"[*~<>(]*-?\d")
LEAST_NUMBERS = 0.4  # of the cells of a table that is one of numbers
NOISE = "python benchmarks/noise.py"


@pytest.fixture
def provenance(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    return importlib.import_module("provenance")


@pytest.fixture
def script_settings(provenance: ModuleType) -> ModuleType:
    return importlib.import_module("script_settings")


def test_the_register_and_its_page_hold_all_commands_of_the_documents(provenance: ModuleType) -> None:
    """Run `python docs/site/provenance.py --update` after a command was added to a page."""
    register = provenance.read_register()
    named = provenance.commands_in_documents()
    assert set(register) == {command for command in named if not command.startswith(provenance.REPRODUCE)}
    assert provenance.provenance_page(register) == (ROOT / "docs" / "provenance.md").read_text()


def test_every_command_can_be_run(provenance: ModuleType) -> None:
    scripts = [name.split()[1] for name in provenance.read_register() if name != provenance.COMPARE]
    assert len(scripts) > 20
    assert [name for name in scripts if not (ROOT / name).is_file()] == []


def test_commands_are_read_from_code_and_never_from_sentences(provenance: ModuleType) -> None:
    page = """Run python benchmarks/one.py, or `A=1 python benchmarks/two.py --data
cora`, `make`, `graphforget reproduce table1 --out x`, `graphforget reproduce`, `graphforget compare --data cora` and
`graphforget compare`.

```sh
python benchmarks/three.py --a 1 \\
    --b 2 > lines  # a comment
graphforget compare --data cs
```
"""
    assert sorted(provenance.commands_of(page)) == [
        ("graphforget compare", "--data cora"),
        ("graphforget reproduce table1", ""),
        ("python benchmarks/three.py", "--a 1 --b 2"),
        ("python benchmarks/two.py", "--data cora"),
    ]


SCRIPT = '''"""A docstring."""
import argparse
import graphforget as gf
from graphforget.request.sampling import Drawing

SIGMAS = (0.1, 0.2)  # a comment


def measure(model: str = "sgc", *, share: float = 0.05) -> None:
    """Another docstring."""
    trained = gf.train(gf.load("cora").split(seed=1), model, mu=1e-3)
    print(f"{trained} is printed", 7)


parser = argparse.ArgumentParser(description="text")
parser.add_argument("--seeds", type=int, default=3, help="text")
'''
EDITS = {  # what is replaced, by what, and the setting that changes: None for none
    "a comment": ("# a comment", "# other words", None),
    "a docstring": ("Another docstring.", "Other words.", None),
    "a printed text": ("is printed", "was printed", None),
    "the layout": ("(0.1, 0.2)", "(\n    0.1,\n    0.2,\n)", None),
    "another line of code": ("    print", "    trained.summary()\n    print", None),
    "a constant": ("(0.1, 0.2)", "(0.1, 0.3)", "script: SIGMAS was (0.1, 0.2), it is (0.1, 0.3)"),
    "an argument": ("default=3", "default=5", "script: --seeds was 3, it is 5"),
    "a default": ("= 0.05", "= 0.1", "script: measure(share) was 0.05, it is 0.1"),
    "a literal of a call": ("mu=1e-3", "mu=1e-2", "script: train() was mu=0.001, it is mu=0.01"),
    "the data": ('"cora"', '"cs"', "script: load() was 'cora', it is 'cs'"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_only_settings_of_a_script_count_as_a_change(edit: str, script_settings: ModuleType, tmp_path: Path) -> None:
    before, after, phrase = EDITS[edit]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    stored = script_settings.settings_of(script)
    assert before in SCRIPT
    script.write_text(SCRIPT.replace(before, after))
    assert script_settings.differences(stored, script_settings.settings_of(script)) == ([phrase] if phrase else [])


def test_defaults_of_the_models_and_functions_that_a_script_names_are_settings(
    script_settings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    stored = script_settings.settings_of(script)
    assert stored["gf.train: releases"] == "64"
    assert stored["Graph.split: test"] == "0.1"
    assert stored["model sgc: sigma"] == str(MODELS["sgc"].sigma)
    assert "model gcn: mu" not in stored
    assert script_settings.differences(stored, stored | {"gf.train: a_new_option": "1"}) == []
    fewer = {name: value for name, value in stored.items() if name != "gf.train: releases"}
    assert script_settings.differences(stored, fewer) == ["gf.train: releases was 64, it is gone"]
    for name in ("sgc", "gcn"):
        monkeypatch.setitem(MODELS, name, dataclasses.replace(MODELS[name], mu=0.5))
    now = script_settings.settings_of(script)
    assert script_settings.differences(stored, now) == ["model sgc: mu was 0.0001, it is 0.5"]


def test_a_comparison_has_the_settings_of_its_models(provenance: ModuleType) -> None:
    settings = provenance.settings_now(provenance.COMPARE, ["--data cora --model gcn --recipe paper"])
    assert {"model gcn: mu", "model gcn: paper", "gf.train: epsilon"} <= settings.keys()
    assert "model sgc: mu" not in settings


def test_changed_and_unknown_settings_are_reported_apart(
    provenance: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the real register: what is recorded there is compared setting by setting."""
    entry = provenance.recorded_now(NOISE, [])
    assert provenance.status(NOISE, entry, []) == ("same", "")
    changed = entry | {"settings": entry["settings"] | {"script: DRAWS": "3"}}
    assert provenance.status(NOISE, changed, []) == ("changed", "script: DRAWS was 3, it is 10")
    assert provenance.status(NOISE, {"version": "0.1.0"}, [])[0] == "unknown"
    assert provenance.status(NOISE, None, [])[0] == "unknown"
    named = {NOISE: {"pages": ["docs/a.md"], "arguments": []}}
    monkeypatch.setattr(provenance, "commands_in_documents", lambda: named)
    for given, words in ((changed, "settings have changed"), ({"version": "0.1.0"}, "before settings were recorded")):
        monkeypatch.setattr(provenance, "read_register", lambda given=given: {NOISE: given})
        lines = provenance.report()
        assert words in lines[1]
        assert lines[2].startswith(f"  {NOISE} (docs/a.md)")
        assert len(lines) == 3


def test_cells_of_other_settings_are_reported(
    provenance: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = (ROOT / "docs" / "results" / "table-datasets.jsonl").read_text()
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    cells = tmp_path / "docs" / "results" / "table-datasets.jsonl"
    command = "graphforget reproduce table-datasets"
    assert provenance.status(command, None, [])[0] == "unknown"
    cells.parent.mkdir(parents=True)
    cells.write_text(stored)
    assert provenance.status(command, None, []) == ("same", "")
    first, *others = stored.splitlines(keepends=True)
    cells.write_text("".join([json.dumps(json.loads(first) | {"settings": "0" * 16}) + "\n", *others]))
    assert provenance.status(command, None, [])[0] == "changed"


def test_what_is_recorded_says_when_and_by_which_code_it_was_made(provenance: ModuleType) -> None:
    recorded = [entry for entry in provenance.read_register().values() if "settings" in entry]
    assert recorded
    for entry in recorded:
        assert re.fullmatch(r"[0-9a-f]{10}\+?", entry["commit"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["made"])


def figures_of(page: Path) -> list[tuple[str, str]]:
    """Each paragraph of a page with a picture, and its caption: the paragraph below it.

    `graphforget reproduce` writes what made a figure at the beginning of the figure's section.
    """
    figures = []
    for section in sections_of(page.read_text()):
        paragraphs = re.split(r"\n\s*\n", section)
        for number, paragraph in enumerate(paragraphs):
            if re.search(r"!\[[^\]]*\]\(", paragraph):
                caption = section if page.parent.name == "results" else "".join(paragraphs[number + 1 : number + 2])
                figures.append((paragraph, " ".join(caption.split())))
    return figures


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_figure_names_its_command_and_its_version(page: Path) -> None:
    """A screenshot of the service is made by a test, which is named as well."""
    for figure, caption in figures_of(page):
        assert re.search(r"`[^`]*(python|graphforget|pytest) [^`]+`", caption), figure
        assert re.search(r"(version|graphforget) \d+\.\d+\.\d+", caption), figure


def test_there_are_figures_to_look_at() -> None:
    assert len([figure for page in PAGES for figure in figures_of(page)]) > 10


def sections_of(text: str) -> list[str]:
    """The parts of a page from heading to heading; headings in code are none."""
    masked = re.sub(r"^```.*?^```", lambda code: re.sub(r"^#", " ", code[0], flags=re.M), text, flags=re.M | re.S)
    return re.split(r"^(?=#{1,6} )", masked, flags=re.MULTILINE)


def tables_of_numbers(section: str) -> list[str]:
    """The tables in which at least `LEAST_NUMBERS` of the cells begin with a number, without first cells of rows.

    A table of exit codes holds nothing that was computed.
    """
    tables = []
    for head, table in re.findall(r"^(\|[^\n]*\|)\n\|[-| :]+\|\n((?:\|[^\n]*\|\n?)+)", section, re.MULTILINE):
        if "exit code" in head:
            continue
        cells = [cell.strip() for row in table.splitlines() for cell in re.split(r"(?<!\\)\|", row)[2:-1]]
        if cells and sum(bool(NUMBER.match(cell)) for cell in cells) >= LEAST_NUMBERS * len(cells):
            tables.append(table)
    return tables


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_of_numbers_has_its_command_in_its_own_section(page: Path) -> None:
    for section in sections_of(page.read_text()):
        for table in tables_of_numbers(section):
            assert COMMAND.search(" ".join(section.split())), f"{section.splitlines()[0]}: no command makes\n{table}"


def test_there_are_tables_of_numbers_and_others() -> None:
    """Otherwise the test above could not fail."""
    sections = [section for page in PAGES for section in sections_of(page.read_text())]
    assert sum(len(tables_of_numbers(section)) for section in sections) > 40
    assert tables_of_numbers("# A\n\n| a | b |\n|---|---|\n| 1 | a word |\n") == []
    assert len(tables_of_numbers("# A\n\n| a | b |\n|---|---|\n| sgc | 88.1 ± 0.2 |\n")) == 1
