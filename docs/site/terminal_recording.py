"""Records `docs/terminal.svg`: twenty seconds of real commands with their real output, as an animated SVG.

python docs/site/terminal_recording.py
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "terminal.svg"
SETUP = 'echo \'{"nodes": ["patient-0017"]}\' > request.json'
COMMANDS = (
    "graphforget train --data patients --model sgc --out runs/one",
    "graphforget unlearn runs/one request.json --out runs/two",
    "graphforget verify runs/two",
)
COLUMNS, SECONDS = 100, 20
MOST_LINES = 9  # of the output of a command; the rest is left out, and the recording says so
FONT, LINE, LEFT, TOP = 13, 19, 16, 44  # pixels
STYLE = """
.terminal { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d7dae0; white-space: pre }
.command { fill: #7ec699; font-weight: bold }
.note { fill: #8b919d }
@media (prefers-reduced-motion: reduce) { .line { animation: none !important; opacity: 1 !important } }
"""


def record() -> list[tuple[str, str]]:
    """The lines of the recording with their kinds: command, output or note."""
    lines: list[tuple[str, str]] = []
    binary = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": binary, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(SETUP, shell=True, check=True, cwd=folder)
        for command in COMMANDS:
            lines.append((f"$ {command}", "command"))
            ran = subprocess.run(
                command, shell=True, check=True, cwd=folder, env=environment, capture_output=True, text=True
            )
            output = [line.rstrip() for line in ran.stdout.splitlines() if line.strip()]
            lines += [(_cut(line), "output") for line in output[:MOST_LINES]]
            left_out = len(output) - MOST_LINES
            if left_out > 0:
                lines.append((f"  (lines left out here: {left_out})", "note"))
            lines.append(("", "output"))
    return lines[:-1]


def _cut(line: str) -> str:
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"


def as_svg(lines: list[tuple[str, str]]) -> str:
    """The lines one after the other: a command waits a little, its output follows at once."""
    width, height = 2 * LEFT + round(COLUMNS * FONT * 0.602), TOP + LINE * len(lines) + 6
    commands = sum(kind == "command" for _, kind in lines)
    pause, at = SECONDS * 0.75 / commands, 0.0
    shown, frames = [], []
    for row, (text, kind) in enumerate(lines):
        if kind == "command":
            at = pause * sum(before == "command" for _, before in lines[:row])
        else:
            at += 0.12 if lines[row - 1][1] != "command" else pause * 0.35
        start = 100 * at / SECONDS  # in percent of the loop, which all lines end together
        frames.append(
            f"@keyframes l{row} {{ 0%, {start:.2f}% {{ opacity: 0 }} {start + 0.3:.2f}%, 99% {{ opacity: 1 }} }}"
        )
        style = f"opacity: 0; animation: l{row} {SECONDS}s infinite"
        shown.append(
            f'<text class="terminal line {kind}" x="{LEFT}" y="{TOP + LINE * row}" xml:space="preserve" '
            f'style="{style}">{html.escape(text)}</text>'
        )
    drawn = "".join(shown)
    rules = " ".join(frames)
    dots = "".join(f'<circle cx="{18 + 18 * i}" cy="16" r="5" fill="{c}"/>' for i, c in enumerate(("#888",) * 3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="A recording of graphforget on the command line">'
        f"<style>{STYLE}{rules}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#1f2329"/>{dots}{drawn}</svg>\n'
    )


if __name__ == "__main__":
    PLACE.write_text(as_svg(record()))
