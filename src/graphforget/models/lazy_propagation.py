"""ScaleGUN's features: `S^K X` by forward push, which follow a deletion locally."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.surgery import attributes_of
from graphforget.linalg.forward_push import PushState, Removal, push_anew, push_removal
from graphforget.linalg.sparse import scale_rows_to_unit, selected_rows
from graphforget.models.fixed import FixedPropagation
from graphforget.models.prepared import prepared_once
from graphforget.request.request import Request


def pushed_features(module: FixedPropagation, graph: Graph, *, rmax: float) -> PushState:
    """The state of a graph: that which followed the last deletion if it is still there, else one made anew.

    A residue is pushed above `rmax` times the mean of the columns' sums of absolute values, as published.
    """

    def prepare() -> PushState:
        x = _dense(_scaled(module, graph.x))
        threshold = rmax * float(np.abs(x).sum() / max(x.shape[1], 1))
        return push_anew(_with_loops(graph), x, layers=max(module.powers), threshold=threshold)

    state: PushState = prepared_once(graph, _key(module, rmax), prepare)
    return state


def features_after(
    module: FixedPropagation, graph: Graph, retained: Graph, request: Request, *, rmax: float
) -> PushState:
    """The state of the retained graph, pushed on from that of the graph before the request."""
    before = pushed_features(module, graph, rmax=rmax)

    def follow() -> PushState:
        return push_removal(before, _removal(module, graph, retained, request), _with_loops(retained))

    state: PushState = prepared_once(retained, _key(module, rmax), follow)
    return state


def _key(module: FixedPropagation, rmax: float) -> Hashable:
    return "forward push", module.powers, module.scale_rows, rmax


def _removal(module: FixedPropagation, graph: Graph, retained: Graph, request: Request) -> Removal:
    old, new = graph.numbers.numpy(), retained.numbers.numpy()
    keep = np.isin(old, new)
    base = int(old.max()) + 1
    source, target = graph.edge_index.numpy()
    left, right = retained.edge_index.numpy()
    gone = ~np.isin(old[target] * base + old[source], new[right] * base + new[left])
    gone &= keep[target] & (source != target)  # every node has a self-loop whatever the edges say
    changed = graph.changed_attribute_rows(request.resolve(graph))
    changed = changed[keep[changed.numpy()]]
    after = np.searchsorted(new, old[changed.numpy()])
    rows = changed.new_tensor(after)
    attributes = selected_rows(retained.x, rows) if retained.has_sparse_attributes else attributes_of(retained, rows)
    return Removal(keep, np.stack([target[gone], source[gone]]), changed.numpy(), _dense(_scaled(module, attributes)))


def _scaled(module: FixedPropagation, x: Tensor) -> Tensor:
    return scale_rows_to_unit(x) if module.scale_rows else x


def _dense(x: Tensor) -> np.ndarray:
    return x.to_dense().double().numpy()


def _with_loops(graph: Graph) -> sp.csr_matrix:
    """The adjacency matrix, in which every node has its self-loop once."""
    source, target = graph.edge_index.numpy()
    outer, n = source != target, graph.num_nodes
    rows = np.concatenate([target[outer], np.arange(n)])
    columns = np.concatenate([source[outer], np.arange(n)])
    return sp.csr_matrix((np.ones(rows.size), (rows, columns)), shape=(n, n))
