"""Which training losses a request changes (docs/maths.md, section 2), and the paper's node sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.overlay import SlotChange
from graphforget.graph.reach import Reach
from graphforget.graph.resolved import Resolved
from graphforget.request.request import Request


@dataclass(frozen=True)
class Footprint:
    """Items before the request, by row. Outside them every training loss is the same before and after.

    `removed` are the training items that go (`dV & V_trn`) or lose their label, `affected` the other training items
    whose loss may differ (`A`), `reached` all items that stay and whose output may differ, training items or not.
    `added` are training items that are there only afterwards, as rows of the later graph's items: a pair may become a
    negative example when its edge goes. A request adds no node and no graph, an update may (`request/change.py`).
    """

    removed: Tensor
    affected: Tensor
    reached: Tensor
    added: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    @property
    def num_removed(self) -> int:
        return self.removed.numel()

    @property
    def num_affected(self) -> int:
        return self.affected.numel()

    @property
    def empty(self) -> bool:
        """No training loss changes, goes or comes: the trained model never depended on what is removed."""
        return not (self.num_removed or self.num_affected or self.added.numel())


@dataclass(frozen=True)
class CountedFootprint(Footprint):
    """A footprint on a graph whose rows lie on ranks: how many training nodes there are in it, but not which."""

    counted_removed: int = 0
    counted_affected: int = 0

    @classmethod
    def of(cls, *, removed: int, affected: int) -> CountedFootprint:
        none = torch.zeros(0, dtype=torch.int64)
        return cls(none, none, none, counted_removed=removed, counted_affected=affected)

    @property
    def num_removed(self) -> int:
        return self.counted_removed

    @property
    def num_affected(self) -> int:
        return self.counted_affected


def footprint(
    graph: Graph, request: Request, reach: Reach, *, inside: Tensor | None = None, retained: Graph | None = None
) -> Footprint:
    """The footprint of `request` for a model of this reach.

    Follows the layers: a node's output differs after a layer if its own input or a neighbour's differed before it, if
    it lost an incoming edge or the weight of one, or, in degree-normalised layers, if a neighbour did, which changes
    the weights of its messages.

    Args:
        graph: The graph before the request.
        request: The request.
        reach: How far a change travels through the model.
        inside: A mask of nodes, for a model that is trained on these nodes and the edges among them alone.
        retained: The graph after the request, if it is there already.

    Returns:
        The rows of `graph` that the request removes or may change.

    Raises:
        InputError: The request names something that is not in the graph.
    """
    resolved = request.resolve(graph)
    if graph.overlay is not None and inside is None and reach.hops is not None:
        after = graph.without(request) if retained is None else retained
        if after.change is not None and after.change.parent() is graph:
            return _by_neighbours(graph, after, resolved, reach)
    return _by_masks(graph, resolved, reach, inside)


def _by_masks(graph: Graph, resolved: Resolved, reach: Reach, inside: Tensor | None) -> Footprint:
    """The footprint from masks over all nodes and edges."""
    source, target = graph.edge_index.numpy()  # numpy's masks take a fraction of torch's time
    train_mask = graph.train_mask.numpy()
    removed = _mask(graph, resolved.node_rows).numpy()
    lost = resolved.edge_mask(graph).numpy() | removed[source] | removed[target]
    within = np.ones_like(removed) if inside is None else inside.numpy()
    among = within[source] & within[target]
    altered = lost | resolved.weight_mask(graph).numpy()  # they change what the receiver gets, and its degree
    directions = [(source, target)] + ([(target, source)] if reach.both_ways and graph.directed else [])
    lost_input = np.zeros_like(removed)
    for _, receiver in directions:
        lost_input[receiver[altered & among]] = True
    changed = _mask(graph, graph.changed_attribute_rows(resolved)).numpy() & within
    if reach.hops is None:
        changed = within & (changed | lost_input | (removed & within)).any()
    for _ in range(reach.hops or 0):
        sends_anew = changed | lost_input if reach.degree_normalised else changed
        following = changed | lost_input
        for sender, receiver in directions:
            following[receiver[sends_anew[sender] & among & ~lost]] = True
        changed = following
    changed &= ~removed
    unlabelled = _mask(graph, resolved.label_rows).numpy()
    masks = ((removed | unlabelled) & within & train_mask, changed & train_mask & ~unlabelled, changed)
    return Footprint(*(torch.from_numpy(mask.nonzero()[0]) for mask in masks))


def _by_neighbours(graph: Graph, after: Graph, resolved: Resolved, reach: Reach) -> Footprint:
    """What the loop over masks computes, in an undirected graph, from the lists of the nodes that change alone."""
    overlay, left, change = graph.overlay, after.overlay, after.change
    assert overlay is not None
    assert left is not None
    assert isinstance(change, SlotChange)
    changed = np.zeros(overlay.num_slots, dtype=bool)
    changed[overlay.slots_of(graph.changed_attribute_rows(resolved).numpy())] = True
    sends_anew = changed.copy()
    if reach.degree_normalised:
        sends_anew[change.relinked] = True
    done = np.zeros_like(changed)
    for _ in range(reach.hops or 0):
        senders = np.flatnonzero(sends_anew & ~done)  # the receivers of earlier ones are in already
        done[senders] = True
        changed[change.relinked] = True
        left.adjacency.mark_senders(senders, changed)
        sends_anew |= changed
    changed[change.gone] = False
    unlabelled = resolved.label_rows.numpy()
    gone = np.union1d(overlay.rows_of(change.gone), unlabelled)
    reached = overlay.rows_of(np.flatnonzero(changed))
    trains = graph.train_mask.numpy()
    affected = np.setdiff1d(reached[trains[reached]], unlabelled, assume_unique=True)
    return Footprint(*(torch.from_numpy(rows) for rows in (gone[trains[gone]], affected, reached)))


@dataclass(frozen=True)
class PaperSets:
    """The paper's `V_1 .. V_4` and `V~_1 .. V~_4`, and the `V~` of its Theorem 2, as rows of the graph before.

    As printed there, with its errors (docs/maths.md, section 2): `V_1` ends one hop short for degree-normalised
    layers and holds removed nodes that neighbour each other; attribute and removed nodes count even if they do not
    train.
    """

    v1: Tensor
    v2: Tensor
    v3: Tensor
    v4: Tensor
    v1_tilde: Tensor
    v2_tilde: Tensor
    v3_tilde: Tensor
    v4_tilde: Tensor
    v_tilde: Tensor


def paper_sets(graph: Graph, request: Request, *, layers: int) -> PaperSets:
    """The node sets of the paper's section 3 for a model with `layers` message-passing layers."""
    resolved = request.resolve(graph)
    ends = resolved.edges.flatten()
    partial = resolved.partial_rows.unique()

    around_nodes = _within(graph, resolved.node_rows, layers) & graph.train_mask
    around_full = _within(graph, resolved.full_rows, layers) & graph.train_mask
    around_partial = _within(graph, partial, layers) & graph.train_mask
    v2 = around_full | _mask(graph, resolved.full_rows)
    v3 = around_partial | _mask(graph, partial)
    v4 = _within(graph, ends, layers) & graph.train_mask
    sets = {"v1": around_nodes, "v2": v2, "v3": v3, "v4": v4}
    sets |= {
        "v1_tilde": around_nodes | _mask(graph, resolved.node_rows),
        "v2_tilde": v2,
        "v3_tilde": v3,
        "v4_tilde": v4,
    }
    sets["v_tilde"] = around_nodes | v4 | around_full | around_partial
    return PaperSets(**{name: mask.nonzero().flatten() for name, mask in sets.items()})


def _within(graph: Graph, rows: Tensor, hops: int) -> Tensor:
    """`union of phi_k(v)` over `rows`: nodes at most `hops` steps away along the messages from some *other* row.

    `phi_k(v)` leaves out `v` itself, so a row is in the union only if it is near another one of `rows`.
    """
    rows = rows.unique()
    source, target = graph.edge_index.numpy()
    n = graph.num_nodes
    ones = np.ones(max(source.size, len(rows)), dtype=np.int64)
    step = sp.csr_matrix((ones[: source.size], (source, target)), shape=(n, n)) + sp.eye(n, dtype=np.int64)
    ball = sp.csr_matrix((ones[: len(rows)], (np.arange(len(rows)), rows.numpy())), shape=(len(rows), n))
    for _ in range(hops):
        ball = ball @ step
        ball.data[:] = 1  # the number of paths does not matter
    balls_over = torch.from_numpy(np.asarray(ball.sum(axis=0)).ravel())
    balls_over[rows] -= 1  # each row lies in its own ball
    return balls_over > 0


def _mask(graph: Graph, rows: Tensor) -> Tensor:
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[rows] = True
    return mask
