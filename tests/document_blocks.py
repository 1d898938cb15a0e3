"""The code blocks of the README and of the pages in `docs/`, and what their marks say.

A mark is an HTML comment on the line before a block, so readers do not see it:

    <!-- not run: the reason why no test runs this block -->
    <!-- long: the reason why only `make test-long` runs it -->
    <!-- run first: python code that the block needs -->
    <!-- run first, sh: shell commands that the block needs -->

A block whose every command is a script in `benchmarks/` is a measurement and needs no mark: the script has to exist.

A Python block that begins with `# NAME.py` is the content of a file, which the next blocks find in their folder.

A comment behind a `print` is what the line prints, and is compared with it. Commands stand in fenced blocks alone: an
indented block would escape the tests, and so would a fence that is indented.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON, SHELL = ("python", "py"), ("sh", "bash", "shell", "console")

_BLOCK = re.compile(
    r"(?P<marks>(?:^<!--(?:(?!-->).)*?-->\n)*)^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)\s*?$",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^(?:\s+(?:```|~~~)|~~~)")
_INDENTED = re.compile(r"^(?: {4}|\t)\s*(?:\$ )?(?:export )?(?:[A-Z_0-9]+=\S+ )*(?:graphforget|make|pip|python3?) ")
_PRINTED = re.compile(r"^\s*print\(.*\)  # (.+)$")
_MARK = re.compile(r"<!--\s*(not run|long|run first, sh|run first):\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code with its place, and its marks."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None = None  # the reason
    long: str | None = None  # the reason
    setup: tuple[tuple[str, str], ...] = ()  # language and code that come first

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}, line {self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that the block is the content of; None if it runs."""
        match = re.match(r"# (\w+\.py)\n", self.code) if self.language in PYTHON else None
        return match[1] if match else None

    @property
    def printed(self) -> dict[int, str]:
        """What lines of the block print, as comments behind them say: by the number of the line, from 1."""
        matches = ((number, _PRINTED.match(line)) for number, line in enumerate(self.code.splitlines(), 1))
        return {number: match[1] for number, match in matches if match}

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a shell block, without comments."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := _words(line))]

    @property
    def measures(self) -> bool:
        """Whether the block only runs scripts of `benchmarks/`, or `graphforget reproduce`."""
        return self.language in SHELL and bool(self.commands) and all(map(_is_measurement, self.commands))

    @property
    def scripts(self) -> list[str]:
        return [word for words in self.commands for word in words if word.startswith("benchmarks/")]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quotation that goes on in the next line
        return line.split()


def _is_measurement(words: list[str]) -> bool:
    rest = [word for word in words if not re.fullmatch(r"export|[A-Z_]+=\S*", word)]
    is_script = rest[:1] == ["python"] and rest[1:2] != [] and rest[1].startswith("benchmarks/")
    return not rest or is_script or rest[:2] == ["graphforget", "reproduce"]


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text()
    blocks = []
    for match in _BLOCK.finditer(text):
        marks = _MARK.findall(match["marks"])
        reasons = dict(marks)
        blocks.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("fence")) + 1,
                language=match["language"].strip(),
                code=match["code"],
                not_run=reasons.get("not run"),
                long=reasons.get("long"),
                setup=tuple(
                    ("sh" if kind.endswith("sh") else "python", code)
                    for kind, code in marks
                    if kind.startswith("run first")
                ),
            )
        )
    return blocks


def escaping_lines(page: Path) -> list[str]:
    """The lines of a page with commands in an indented block, or with a fence that no test would find."""
    text = _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())
    lines = enumerate(text.splitlines(), 1)
    return [f"{page.name}, line {number}: {line}" for number, line in lines if _escapes(line)]


def _escapes(line: str) -> bool:
    return bool(_FENCE.match(line) or _INDENTED.match(f"{line} "))
