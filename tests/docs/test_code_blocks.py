"""Every block of Python or shell in the README and in docs/ runs, or says why not.

The blocks of a page run in their order, in one folder and one Python session, which knows `gf` and `torch`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import ENVIRONMENT, Run
from document_blocks import PAGES, PYTHON, ROOT, SHELL, Block, blocks_of, escaping_lines

OUTSIDE = ("make", "pip", "curl", "torchrun")  # they would change the environment, or need a network
ADVICE = "mend the block, or write <!-- not run: the reason --> on the line before it (tests/document_blocks.py)"
OWN_MODEL = ROOT / "docs" / "bring-your-own-model.md"
RUNNABLE = [
    page
    for page in PAGES
    if any(b.language in PYTHON + SHELL and not (b.not_run or b.measures) for b in blocks_of(page))
]


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each page starts in an empty folder. What it trains must not slow the other tests down."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    threads, modules = torch.get_num_threads(), set(sys.modules)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name in set(sys.modules) - modules:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").resolve().is_relative_to(tmp_path.resolve()):
            del sys.modules[name]


class Session:
    """The names of a page's Python blocks, and the command line for its shell blocks."""

    def __init__(self, run: Run) -> None:
        self.run, self.names = run, {"gf": gf, "torch": torch, "__name__": "__main__"}

    def execute(self, block: Block) -> None:
        if block.file is not None:
            Path(block.file).write_text(block.code)
            return
        for language, code in (*block.setup, (block.language, block.code)):
            try:
                self._python(code, block) if language in PYTHON else self._shell(code)
            except Exception as error:
                pytest.fail(f"{block.place}: {type(error).__name__}: {error}; {ADVICE}", pytrace=False)

    def _python(self, code: str, block: Block) -> None:
        printed: dict[int, list[str]] = {}

        def record(*values: object, **_: Any) -> None:
            printed.setdefault(sys._getframe(1).f_lineno, []).append(" ".join(map(str, values)))

        self.names["print"] = record
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, block.place, "exec"), self.names)
        if code == block.code:
            shown = {line: ", ".join(printed.get(line, ["nothing"])) for line in block.printed}
            assert shown == block.printed, "a comment behind print is not what is printed"

    def _shell(self, code: str) -> None:
        """Commands of graphforget run in this process, which has loaded torch already; others in a shell."""
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["graphforget"]:
                ended = self.run(*words[1:])
                assert ended.code == 0, f"{line!r} ended with {ended.code}: {ended.stderr.strip()}"
            elif words:
                assert words[0] not in OUTSIDE, f"no test runs {words[0]}"
                subprocess.run(["sh", "-ec", line], check=True, timeout=120)


class Console(Session):
    """The same with shell blocks as a reader types them: in a shell, with the installed command."""

    def _shell(self, code: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(["sh", "-ec", code], env=ENVIRONMENT | {"PATH": path}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr


def pages(long: bool) -> list[Any]:
    chosen = [page for page in RUNNABLE if any(block.long for block in blocks_of(page)) or not long]
    chosen = [page for page in chosen if page != OWN_MODEL]  # it has tests of its own
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in chosen]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(long=False))
def test_the_blocks_of_a_page_run(page: Path, run: Run, raw_data: Path) -> None:
    _run_page(page, run, long=False)


@pytest.mark.long
@pytest.mark.parametrize("page", pages(long=True))
def test_the_long_blocks_of_a_page_run(page: Path, run: Run, raw_data: Path) -> None:
    _run_page(page, run, long=True)


@pytest.mark.slow
def test_the_page_for_ones_own_model_leads_to_signed_certificates_that_verify(run: Run, raw_data: Path) -> None:
    """Both ways of the page, word for word."""
    _run_page(OWN_MODEL, run, long=False)
    _check_own_models()


@pytest.mark.long
def test_the_page_for_ones_own_model_works_in_a_console(run: Run, raw_data: Path) -> None:
    """As a reader follows it: each command is a process of its own, which has to find the file with the model."""
    _run_page(OWN_MODEL, run, long=False, kind=Console)
    _check_own_models()


def _check_own_models() -> None:
    for folder, key in (("runs/digits", "privacy-key.pub"), ("runs/mine", "my-key.pub")):
        certificate = json.loads((Path(folder) / "certificate.json").read_text())
        assert certificate["level"] == "certified", folder
        assert certificate["signature"]["public_key"] == gf.public_key(key).public_bytes_raw().hex(), folder


def _run_page(page: Path, run: Run, *, long: bool, kind: type[Session] = Session) -> None:
    session = kind(run)
    for block in blocks_of(page):
        if block.language in PYTHON + SHELL and not (block.not_run or block.measures) and (long or not block.long):
            session.execute(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_names_its_language_and_every_mark_its_reason(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language, f"{block.place}: the block names no language; write ```text if it is none"
        for reason in (block.not_run, block.long):
            assert reason is None or len(reason.split()) >= 3, f"{block.place}: the mark gives no reason"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_escapes_in_an_indented_block(page: Path) -> None:
    assert escaping_lines(page) == [], "write a fenced block, ```sh"


def test_an_indented_command_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    fenced = "```sh\ngraphforget a \\\n    python b\n```\n"
    page.write_text(f"# Page\n\n{fenced}\n    some output\n\nUse `make demo`.\n")
    assert escaping_lines(page) == []
    escaping = ["    graphforget demo", "    make", "    A_1=1 python a.py", "\tpip install x", "    $ make a"]
    escaping += ["   ```sh", "~~~sh"]
    page.write_text("# Page\n\n" + fenced + "\n".join(escaping))
    assert escaping_lines(page) == [f"page.md, line {7 + place}: {line}" for place, line in enumerate(escaping)]


def test_the_documents_say_what_code_prints() -> None:
    """The levels above all. Otherwise nothing would be compared."""
    printed = [text for page in PAGES for block in blocks_of(page) for text in block.printed.values()]
    assert printed.count("certified") > 5
    levels = [line for page in PAGES for block in blocks_of(page) for line in block.code.splitlines()]
    assert [line for line in levels if line.endswith(("# certified", "# exact")) and "print(" not in line] == []


def test_measurements_name_scripts_that_exist() -> None:
    measured = [block for page in PAGES for block in blocks_of(page) if block.measures]
    assert len(measured) > 3
    missing = [(block.place, name) for block in measured for name in block.scripts if not (ROOT / name).is_file()]
    assert missing == []


def test_a_block_that_fails_is_named_with_its_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("document_blocks.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nno_such_name\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"page\.md, line 3: NameError.*not run"):
        _run_page(page, run, long=False)
    page.write_text("# Page\n\n<!-- run first: no_such_name = 1 -->\n```python\nno_such_name\n```\n")
    _run_page(page, run, long=False)
    page.write_text("# Page\n\n```python\nfor i in (1, 2):\n    print(i, 'a')  # 1 a, 2 a\nprint(3)  # 4\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"line 3: AssertionError.*is not what is printed"):
        _run_page(page, run, long=False)
    page.write_text(page.read_text().replace("# 4", "# 3"))
    _run_page(page, run, long=False)
    page.write_text("# Page\n\n```sh\ngraphforget no-such-command\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"line 3: AssertionError.*ended with 2"):
        _run_page(page, run, long=False)
    page.write_text("# Page\n\n<!-- not run: it is an example of a failure -->\n```sh\ngraphforget nothing\n```\n")
    _run_page(page, run, long=False)
