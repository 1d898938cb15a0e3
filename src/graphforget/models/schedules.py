"""How long networks are trained: the quick recipe and the paper's. Imports nothing, for the command line."""

from __future__ import annotations

from dataclasses import dataclass

RECIPES = ("quick", "paper")  # the first is the default


@dataclass(frozen=True)
class Schedule:
    """Epochs of Adam at a learning rate, then steps of L-BFGS (the polish)."""

    epochs: int
    learning_rate: float
    polish_steps: int


QUICK = Schedule(epochs=100, learning_rate=0.01, polish_steps=0)  # of modules of one's own
PAPER = Schedule(epochs=300, learning_rate=0.01, polish_steps=100)
