"""The small network of both learned attacks: it maps the features of a node or of a pair to a score."""

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

# Scores are rounded: equal features must get equal scores in every batch, or rounding breaks ties in an AUC.
DIGITS = 9


@dataclass(frozen=True)
class AttackNetwork:
    """An untrained network and how it is trained: ReLU layers with dropout, cross-entropy, Adam on small batches.

    With a share `held_out`, training keeps the weights of the epoch with the lowest loss on that share, and ends after
    `patience` epochs without a lower one.
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
        """Trains to separate members (True) from non-members. The seed decides everything; no global RNG is used."""
        members = np.asarray(members, dtype=bool)
        _check(features)
        if members.shape != (len(features),):
            raise InputError(f"there are {len(features)} rows of features and {members.size} labels, each row needs 1")
        if members.all() or not members.any():
            raise InputError("an attack is trained on members and non-members, and only one kind was given")
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
        held_out, rows = torch.randperm(len(x)).tensor_split([int(self.held_out * len(x))])
        adam = torch.optim.Adam(layers.parameters(), lr=self.learning_rate, fused=True)
        best, best_state, since = math.inf, layers.state_dict(), 0
        for epoch in range(self.epochs):
            layers.train()
            for chosen in rows[torch.randperm(len(rows))].split(self.batch):
                adam.zero_grad()
                cross_entropy(layers(x[chosen]), kinds[chosen]).backward()
                adam.step()
            if progress is not None:
                progress("attack network", epoch + 1, self.epochs)
            if not len(held_out):
                continue
            with torch.no_grad():
                loss = float(cross_entropy(layers.eval()(x[held_out]), kinds[held_out]))
            since += 1
            if loss < best:
                best, best_state, since = loss, copy.deepcopy(layers.state_dict()), 0
            elif since >= self.patience:
                break
        layers.load_state_dict(best_state if len(held_out) else layers.state_dict())


class FittedNetwork:
    """A trained attack network."""

    def __init__(self, layers: nn.Sequential, scaler: StandardScaler | None) -> None:
        self._layers, self._scaler = layers, scaler

    def scores(self, features: np.ndarray) -> np.ndarray:
        """One score for each row, the difference of the two outputs: above 0 means "member". Rows are independent."""
        _check(features)
        inputs = self._layers[0].in_features
        if features.shape[1] != inputs:
            raise InputError(f"there are {features.shape[1]} features, the attack was trained on {inputs}")
        if len(features) == 0:
            return np.zeros(0)
        scaled = features if self._scaler is None else self._scaler.transform(features)
        with torch.no_grad():
            non_member, member = self._layers(torch.from_numpy(scaled).double()).T.numpy()
        return np.asarray(np.round(member - non_member, DIGITS))


def _scaler(features: np.ndarray) -> StandardScaler:
    from sklearn.preprocessing import StandardScaler  # slow to load, and only attacks need it

    return StandardScaler().fit(features)


def _check(features: np.ndarray) -> None:
    if features.ndim != 2:
        raise InputError(f"the features have shape {features.shape}, examples x features is needed")
    if not np.isfinite(features).all():
        raise InputError("the features hold NaN or infinity, every value must be finite")
