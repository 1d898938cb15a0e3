"""MRattack (membership recall): a student learns from a model's answers alone, and both together vote on each node.

The model is a noisy labeller. Where a student that sees attributes only and the model agree with confidence, the model
probably learned the node. The score of a node is the largest joint probability of a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from graphforget.errors import InputError
from graphforget.validation import whole_number


@dataclass(frozen=True)
class RecallSettings:
    """The settings of the attack. The share of the teacher in later targets and the batch are not published."""

    hidden: int = 128
    learning_rate: float = 1e-4
    rounds: int = 3
    epochs: int = 3  # of distillation in each round
    steps: int = 2  # on pseudo-labels in each round, over all chosen nodes
    batch: int = 64
    teacher_share: float = 0.5
    attribute_mix: float = 0.2  # the parameter of the Beta distribution
    label_mix: float = 0.75
    chosen: float = 0.6  # of the nodes, spread over the classes
    joint_smoothing: float = 0.01
    label_smoothing: float = 0.05


@dataclass(frozen=True, eq=False)
class RecallAttack:
    """The result: the joint score of every node, and the student's probabilities."""

    scores: np.ndarray
    student: Tensor

    def recall(self, rows: Tensor, labels: Tensor) -> float:
        """The share of these nodes whose true label the student gives."""
        return float((self.student[rows].argmax(dim=1) == labels[rows]).double().mean())


def recall_attack(x: Tensor, teacher: Tensor, *, seed: int, settings: RecallSettings | None = None) -> RecallAttack:
    """Trains a student on the dense attributes `x` and the posteriors `teacher` of all nodes, and scores every node."""
    settings = settings or RecallSettings()
    if teacher.dim() != 2 or len(x) != len(teacher):
        raise InputError(f"there are {len(x)} rows of attributes and {len(teacher)} posteriors, each row needs one")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(whole_number(seed, "the seed"))
        student = _student(x.float(), teacher.float(), settings)
    smoothed = joint_probabilities(teacher.double(), student.double(), smoothing=settings.joint_smoothing)
    return RecallAttack(smoothed.max(dim=1).values.numpy(), student)


def joint_probabilities(teacher: Tensor, student: Tensor, *, smoothing: float) -> Tensor:
    """The product of both probabilities, each mixed with the uniform distribution by the weight `smoothing`."""
    uniform = smoothing / teacher.shape[1]
    joint: Tensor = ((1 - smoothing) * teacher + uniform) * ((1 - smoothing) * student + uniform)
    return joint


def pseudo_labels(joint: Tensor, *, share: float) -> tuple[Tensor, Tensor]:
    """For each class the `ceil(share N / C)` nodes with the largest joint probability of it, as rows and classes."""
    nodes, classes = joint.shape
    count = min(nodes, math.ceil(share * nodes / classes))
    rows = joint.topk(count, dim=0).indices
    return rows.T.reshape(-1), torch.arange(classes).repeat_interleave(count)


def _student(x: Tensor, teacher: Tensor, settings: RecallSettings) -> Tensor:
    classes = teacher.shape[1]
    network = nn.Sequential(nn.Linear(x.shape[1], settings.hidden), nn.ReLU(), nn.Linear(settings.hidden, classes))
    adam = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate)
    target = teacher
    for round_number in range(settings.rounds):
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(x)).split(settings.batch):
                mixed, labels = _mixed(x, target, rows, settings, mix_labels=round_number > 0)
                _step(network, adam, mixed, labels)
        with torch.no_grad():
            answers = network(x).softmax(dim=1)
        joint = joint_probabilities(teacher, answers, smoothing=settings.joint_smoothing)
        rows, names = pseudo_labels(joint, share=settings.chosen)
        smooth = torch.full((len(rows), classes), settings.label_smoothing / classes)
        smooth[torch.arange(len(rows)), names] += 1 - settings.label_smoothing
        for _ in range(settings.steps):
            _step(network, adam, x[rows], smooth)
        with torch.no_grad():
            answers = network(x).softmax(dim=1)
        target = settings.teacher_share * teacher + (1 - settings.teacher_share) * answers
    return answers


def _mixed(
    x: Tensor, target: Tensor, rows: Tensor, settings: RecallSettings, *, mix_labels: bool
) -> tuple[Tensor, Tensor]:
    """Mixup of a batch with itself in another order; the weight of a node's own values is at least one half."""
    other = rows[torch.randperm(len(rows))]

    def mix(values: Tensor, parameter: float) -> Tensor:
        weight = torch.distributions.Beta(parameter, parameter).sample((len(rows), 1))
        weight = torch.maximum(weight, 1 - weight)
        return weight * values[rows] + (1 - weight) * values[other]

    return mix(x, settings.attribute_mix), mix(target, settings.label_mix) if mix_labels else target[rows]


def _step(network: nn.Module, adam: torch.optim.Optimizer, x: Tensor, labels: Tensor) -> None:
    adam.zero_grad()
    kl_div(network(x).log_softmax(dim=1), labels, reduction="batchmean").backward()
    adam.step()
