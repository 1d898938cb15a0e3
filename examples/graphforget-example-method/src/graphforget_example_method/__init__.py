"""A small unlearning method and a small attack for graphforget."""

from graphforget_example_method.descent import Descent
from graphforget_example_method.entropy import EntropyAttack

__all__ = ["Descent", "EntropyAttack"]
