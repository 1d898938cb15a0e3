"""The last point of a minimisation on the disk, so that a restarted group goes on from there. It is private."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from graphforget.files import write_atomic

KEY = 64  # bytes


class Checkpoint:
    """A file with the last point of one minimisation, under the key of that minimisation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, key: str, *, like: Tensor) -> Tensor:
        """The point of the minimisation with this key; `like` if there is none."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return like
        numbers = content[KEY:]
        if content[:KEY] != key.encode() or len(numbers) != like.numel() * 8:
            return like
        point = torch.frombuffer(bytearray(numbers), dtype=torch.float64)
        return point if bool(point.isfinite().all()) else like

    def write(self, key: str, point: Tensor) -> None:
        """Replaces the file by this point."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, key.encode() + point.detach().double().numpy().tobytes(), mode=0o600)

    def remove(self) -> None:
        """Removes the file: it depends on data that may have been deleted since."""
        self.path.unlink(missing_ok=True)
