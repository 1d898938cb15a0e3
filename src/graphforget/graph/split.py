"""Random splits into training and test nodes, in which no node's side depends on another node."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.hashing import node_hashes, salt, salted, uniform
from graphforget.graph.targets import has_target
from graphforget.validation import whole_number

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


def split(graph: Graph, *, seed: int = 0, test: float = 0.1) -> Graph:
    """Labelled nodes split at random into training and test nodes, 90/10 by default as in the paper.

    A keyed hash of its own number decides on which side a node is, so removing a node moves no other. The sizes
    are those of independent draws. Where these would leave a side without any node, as may happen in small
    graphs, the node with the lowest hash tests, or the one with the highest trains.

    Raises:
        InputError: There are fewer than two labelled nodes, or the share is out of range.
    """
    if not 0 < test < 1:
        raise InputError(f"the test share is {test}, it must be between 0 and 1")
    labelled = has_target(graph.y)
    test_mask = _drawn(graph, labelled, share=test, purpose="test", seed=seed)
    train_mask = labelled & ~test_mask
    none = torch.zeros_like(test_mask)
    if not train_mask.any():
        missing = f"a test share of {test} leaves" if labelled.any() else "no node has a label, which leaves"
        raise InputError(f"{missing} no training node")
    return dataclasses.replace(graph, train_mask=train_mask, val_mask=none, test_mask=test_mask)


def hold_out(graph: Graph, *, seed: int = 0, share: float = 0.1) -> Graph:
    """A share of the training nodes becomes validation nodes: to choose settings without the test nodes.

    Drawn as by `split`; with a share of 0 there are none.
    """
    if not 0 <= share < 1:
        raise InputError(f"the validation share is {share}, it must be between 0 and 1")
    val_mask = _drawn(graph, graph.train_mask, share=share, purpose="validation", seed=seed)
    if torch.equal(val_mask, graph.train_mask):
        raise InputError(f"a validation share of {share} leaves no training node")
    return dataclasses.replace(graph, train_mask=graph.train_mask & ~val_mask, val_mask=graph.val_mask | val_mask)


def _drawn(graph: Graph, among: Tensor, *, share: float, purpose: str, seed: int) -> Tensor:
    """A mask of about this share of the nodes: if the share is not 0, at least one; all only of a single node.

    Of a collection, graphs are drawn instead, each with all its nodes.
    """
    key = salt(purpose, whole_number(seed, "the seed"))
    numbers = graph.numbers if graph.graph_numbers is None else graph.graph_numbers
    positions = uniform(salted(node_hashes(numbers), key))
    drawn = among & (positions < share)
    if share > 0 and among.any() and not drawn.any():
        drawn |= numbers == numbers[torch.where(among, positions, 1.0).argmin()]
    elif torch.equal(drawn, among) and numbers[among].unique().numel() > 1:
        drawn &= numbers != numbers[torch.where(among, positions, -1.0).argmax()]
    return drawn
