"""The code blocks of the README and of the pages in `docs/`, and what their marks say.

A mark is an HTML comment on the line before a block, so readers do not see it:

    <!-- not run: the reason why no test runs this block -->
    <!-- long: the reason why only `make test-long` runs it -->
    <!-- run first: python code that the block needs -->
    <!-- run first, sh: shell commands that the block needs -->

A block whose every command is a script in `benchmarks/` is a measurement and needs no mark: the script has to exist.
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
