"""The machine that results were computed on, enough to judge times by, without its name; and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

import graphforget as gf


def machine() -> dict[str, str | int]:
    return {
        "cores": os.cpu_count() or 1,
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "graphforget": gf.__version__,
    }


@cache
def commit() -> str | None:
    """The commit of the code that computes, with a `+` if files of the package differ from it; None if it is not known.

    Only a checkout of the project itself counts, not a folder around an installed package.
    """
    package = Path(__file__).parents[1]
    if package.parent.name != "src":
        return None
    try:
        head = _git(package, "rev-parse", "HEAD")
        return head + ("+" if _git(package, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


def describe(facts: dict[str, str | int]) -> str:
    """The machine in words."""
    names = ("cores", "architecture", "system", "python", "torch", "graphforget")
    cores, architecture, system, python, torch_, ours = (facts.get(name, "?") for name in names)
    return f"{cores} cores ({architecture}, {system}), on the CPU, Python {python}, torch {torch_}, graphforget {ours}"
