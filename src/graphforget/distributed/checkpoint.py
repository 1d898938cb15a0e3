"""The last point of a minimisation on the disk, so that a restarted group goes on from there. It is private."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from graphforget.files import write_atomic

KEY = 64  # bytes
COUNTS = 16  # bytes: steps and products, 8 each


class Checkpoint:
    """A file with the last point of one minimisation, under the key of that minimisation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, key: str, *, like: Tensor) -> tuple[Tensor, int, int]:
        """The point of the minimisation with this key, with its steps and products; `like` and zeros without one."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return like, 0, 0
        counts, numbers = content[KEY : KEY + COUNTS], content[KEY + COUNTS :]
        if content[:KEY] != key.encode() or len(numbers) != like.numel() * 8:
            return like, 0, 0
        point = torch.frombuffer(bytearray(numbers), dtype=torch.float64)
        steps, products = (int.from_bytes(part, "little") for part in (counts[:8], counts[8:]))
        return (point, steps, products) if bool(point.isfinite().all()) else (like, 0, 0)

    def write(self, key: str, point: Tensor, *, steps: int, products: int) -> None:
        """Replaces the file by this point."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        counts = steps.to_bytes(8, "little") + products.to_bytes(8, "little")
        write_atomic(self.path, key.encode() + counts + point.detach().double().numpy().tobytes(), mode=0o600)

    def remove(self) -> None:
        """Removes the file: it depends on data that may have been deleted since."""
        self.path.unlink(missing_ok=True)
