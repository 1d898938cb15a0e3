"""A membership attack: a model is more certain about nodes that it was trained on."""

from __future__ import annotations

import numpy as np

from graphforget.audits.plugged import Attack, AttackQuery


class EntropyAttack(Attack):
    """The negative entropy of the prediction, less that of the attacker's own model."""

    name = "entropy"
    title = "Negative entropy of the prediction"

    def scores(self, query: AttackQuery) -> tuple[np.ndarray, np.ndarray]:
        gain = _negative_entropy(query.logits) - _negative_entropy(query.shadow)
        return gain[query.removed], gain[query.outsiders]


def _negative_entropy(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    total: np.ndarray = (np.exp(logs) * logs).sum(axis=1)
    return total
