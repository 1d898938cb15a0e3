"""The small network that both attacks end in: features of a node or of a pair in, a score out."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from graphforget.errors import InputError
from graphforget.progress import Progress
from graphforget.validation import whole_number

if TYPE_CHECKING:
    from sklearn.preprocessing import StandardScaler

# Equal features must get equal scores in whatever company, or ties in an AUC are broken by rounding in matrix products.
DIGITS = 9


@dataclass(frozen=True)
class AttackNetwork:
    """ReLU layers with dropout, two outputs, cross-entropy, Adam on small batches: what is trained, and how.

    With a share `held_out` the weights of the epoch with the least loss on that share are kept, and training ends
    after `patience` epochs without a new one.
    """

    hidden: tuple[int, ...]
    dropout: float
    learning_rate: float
    epochs: int
    batch: int
    standardise: bool = False  # columns to mean 0 and variance 1, by the features that it is fitted on
    held_out: float = 0.0
    patience: int = 20

    def fit(
        self, features: np.ndarray, members: np.ndarray, *, seed: int, progress: Progress | None = None
    ) -> FittedNetwork:
        """Learns to tell members (True) from the others. The seed decides everything; no global randomness is used."""
        members = np.asarray(members, dtype=bool)
        _check(features)
        if members.shape != (len(features),):
            raise InputError(f"there are {len(features)} rows of features and {members.size} kinds, each row needs one")
        if members.all() or not members.any():
            raise InputError("an attack learns from members and non-members, and only one kind was given")
        scaler = _scaler(features) if self.standardise else None
        scaled = features if scaler is None else scaler.transform(features)
        x, kinds = torch.from_numpy(scaled).float(), torch.from_numpy(members).long()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(whole_number(seed, "the seed"))
            layers = self._layers(features.shape[1])
            self._descend(layers, x, kinds, progress)
        return FittedNetwork(layers.double().eval(), scaler)

    def _layers(self, inputs: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for a, b in pairwise((inputs, *self.hidden)):
            parts += [nn.Linear(a, b), nn.ReLU(), nn.Dropout(self.dropout)]
        layers = nn.Sequential(*parts, nn.Linear((inputs, *self.hidden)[-1], 2))
        for part in layers:
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                nn.init.zeros_(part.bias)
        return layers

    def _descend(self, layers: nn.Sequential, x: Tensor, kinds: Tensor, progress: Progress | None) -> None:
        aside, rows = torch.randperm(len(x)).tensor_split([int(self.held_out * len(x))])
        adam = torch.optim.Adam(layers.parameters(), lr=self.learning_rate, fused=True)
        best, kept, since = math.inf, layers.state_dict(), 0
        for epoch in range(self.epochs):
            layers.train()
            for chosen in rows[torch.randperm(len(rows))].split(self.batch):
                adam.zero_grad()
                cross_entropy(layers(x[chosen]), kinds[chosen]).backward()
                adam.step()
            if progress is not None:
                progress("attack network", epoch + 1, self.epochs)
            if not len(aside):
                continue
            with torch.no_grad():
                loss = float(cross_entropy(layers.eval()(x[aside]), kinds[aside]))
            since += 1
            if loss < best:
                best, kept, since = loss, copy.deepcopy(layers.state_dict()), 0
            elif since >= self.patience:
                break
        layers.load_state_dict(kept if len(aside) else layers.state_dict())


class FittedNetwork:
    """A trained attack network, which scores anything that it is shown."""

    def __init__(self, layers: nn.Sequential, scaler: StandardScaler | None) -> None:
        self._layers, self._scaler = layers, scaler

    def scores(self, features: np.ndarray) -> np.ndarray:
        """One score a row, the member's output less the other's: above 0 means "member". No row depends on another."""
        _check(features)
        inputs = self._layers[0].in_features
        if features.shape[1] != inputs:
            raise InputError(f"there are {features.shape[1]} features, the attack was trained on {inputs}")
        if len(features) == 0:
            return np.zeros(0)
        scaled = features if self._scaler is None else self._scaler.transform(features)
        with torch.no_grad():
            other, member = self._layers(torch.from_numpy(scaled).double()).T.numpy()
        return np.asarray(np.round(member - other, DIGITS))


def _scaler(features: np.ndarray) -> StandardScaler:
    from sklearn.preprocessing import StandardScaler  # slow to load, and only attacks need it

    return StandardScaler().fit(features)


def _check(features: np.ndarray) -> None:
    if features.ndim != 2:
        raise InputError(f"the features have shape {features.shape}, examples x features is needed")
    if not np.isfinite(features).all():
        raise InputError("the features hold NaN or infinity, every value must be finite")
