"""The versions and settings, beside the recipe and the graph, on which the bits of trained weights depend."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from graphforget.errors import InputError

LIBRARIES = ("graphforget", "torch", "torch_geometric", "numpy", "scipy")


@cache
def versions() -> dict[str, str]:
    """The versions of this package, Python and the libraries that compute."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}


def environment(*, device: str = "cpu") -> dict[str, Any]:
    """Versions, threads and machine, as JSON values. Training gives the same bits only if all of these are equal.

    Threads and torch's settings may change while a program runs, so they are read again. Torch's deterministic
    algorithms are always on in training.
    """
    return {
        **versions(),
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "default_dtype": str(torch.get_default_dtype()),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }


def checked_device(device: Any) -> str:
    """The device as a string. Raises `InputError` if this machine cannot use it."""
    try:
        torch.zeros(1, device=device)
    except Exception as error:  # torch raises whatever it likes here
        raise InputError(f"device {device!r} cannot be used: {' '.join(str(error).split())}") from error
    return str(device)
