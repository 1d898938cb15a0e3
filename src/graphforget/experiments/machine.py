"""The machine that results were computed on: enough to judge times by, without its name."""

from __future__ import annotations

import os
import platform

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


def describe(facts: dict[str, str | int]) -> str:
    """The machine in words."""
    names = ("cores", "architecture", "system", "python", "torch", "graphforget")
    cores, architecture, system, python, torch_, ours = (facts.get(name, "?") for name in names)
    return f"{cores} cores ({architecture}, {system}), on the CPU, Python {python}, torch {torch_}, graphforget {ours}"
