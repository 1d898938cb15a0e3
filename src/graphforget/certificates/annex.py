"""The private annex of a certificate: salted hashes of what was deleted, and everything that was measured.

Whoever has it can check that nothing deleted is in a graph, and that a certificate belongs to given weights and to a
given request. It is private: anybody who has it can test guesses of names against the hashes, and what was measured
depends on what was deleted. Without its salt nobody can test guesses against the certificate's digests of the request,
of the annex and of the private weights.

Requests that were answered together have one annex. Each has a digest with a salt of its own, so that whoever made one
of them can be shown that it is in the certificate, and learns nothing about the others.

What it reveals to its reader: how many nodes, edges, attributes, labels and weights were named, which columns, and for
every guess of a name whether it is right. An edge can be guessed only with both ends at once, by its hash or by its tag
(`edge_tags.py`): nothing in the annex tells that a node is the end of a deleted edge.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from graphforget.certificates.salted import framed, salted_hash
from graphforget.errors import InputError
from graphforget.privacy.salt import new_salt
from graphforget.request.hashed_items import HashedItems
from graphforget.request.update import Update
from graphforget.validation import read_fields

if TYPE_CHECKING:
    from torch import Tensor

    from graphforget.graph.graph import Graph
    from graphforget.request.request import Request

HASH = re.compile("[0-9a-f]{64}")
TAG = re.compile("[0-9a-f]{16}")
MOST_COLUMNS = 2**24

Columns = Literal["all"] | tuple[int, ...]


@dataclass(frozen=True)
class Commitment:
    """The salted digest of one request. Whoever has the salt can check which request it is."""

    salt: bytes
    digest: str

    @classmethod
    def of(cls, request: Request | Update) -> Commitment:
        """A commitment to the request with a fresh salt."""
        salt = new_salt()
        return cls(salt, request_digest(request, salt))

    def is_of(self, request: Request | Update) -> bool:
        return request_digest(request, self.salt) == self.digest


@dataclass(frozen=True)
class Annex:
    """The annex of one release. Hashes are SHA-256 of the salt, the kind and all parts, each after its length."""

    salt: bytes
    request: str  # digest of the request as it was given, or of the digests of all requests
    nodes: frozenset[str]
    edges: frozenset[str]
    attributes: Mapping[str, Columns]
    graphs: frozenset[str] = frozenset()  # of a collection
    account: Mapping[str, Any] = field(default_factory=dict)  # how the request was answered: JSON, private
    released: bool = True  # False: nothing was released, so the data that the request names may still be in the graph
    edge_tags: frozenset[str] = frozenset()  # to find edges quickly; none in an earlier format
    batch: tuple[Commitment, ...] = ()  # of requests that were answered together; none for a single request
    labels: frozenset[str] = frozenset()  # of nodes whose label was forgotten
    edge_weights: frozenset[str] = frozenset()  # of edges whose weight was forgotten
    readmitted: HashedItems | None = None  # of an update: what was deleted before and is in the graph again

    @classmethod
    def of(
        cls,
        graph: Graph,
        request: Request,
        *,
        requests: Sequence[Request] = (),
        salt: bytes | None = None,
        account: Mapping[str, Any] | None = None,
    ) -> Annex:
        """The annex of a request against the graph from before the deletion. Without a `salt` it gets a fresh one.

        If `request` is the union of several `requests`, each of them gets a commitment.
        """
        from graphforget.certificates.deleted_data import edge_hashes, node_names

        salt = new_salt() if salt is None else salt
        batch = tuple(map(Commitment.of, requests)) if len(requests) > 1 else ()
        resolved = request.resolve(graph)
        graphs = graph.numbers_by_name(request.graphs) if request.graphs else []
        columns: dict[int, Columns] = dict.fromkeys(resolved.full_rows.tolist(), "all")
        rows, counts = resolved.partial_rows.unique_consecutive(return_counts=True)  # a node's columns stand together
        for row, part in zip(rows.tolist(), resolved.partial_columns.split(counts.tolist()), strict=True):
            columns[row] = tuple(part.sort().values.tolist())
        named = zip(node_names(graph, list(columns)), columns.values(), strict=True)
        edges, tags = edge_hashes(salt, graph, resolved.edges)
        gone, unlabelled = (node_names(graph, rows.tolist()) for rows in (resolved.node_rows, resolved.label_rows))
        return cls(
            salt=salt,
            request=digest_of_all([one.digest for one in batch]) if batch else request_digest(request, salt),
            nodes=frozenset(salted_hash(salt, "node", name) for name in gone),
            labels=frozenset(salted_hash(salt, "label", name) for name in unlabelled),
            edges=edges,
            edge_weights=edge_hashes(salt, graph, resolved.weight_edges, kind="edge weight")[0],
            attributes={salted_hash(salt, "attributes", name): c for name, c in named},
            graphs=frozenset(salted_hash(salt, "graph", str(graph.name_of_graph(number))) for number in graphs),
            account=dict(account or {}),
            edge_tags=tags,
            batch=batch,
        )

    @classmethod
    def of_update(
        cls, update: Update, *, salt: bytes, account: Mapping[str, Any], readmitted: HashedItems | None
    ) -> Annex:
        """The annex of an update. What it takes out of the graph was not asked for, and may come back."""
        none: frozenset[str] = frozenset()
        return cls(salt, request_digest(update, salt), none, none, {}, account=dict(account), readmitted=readmitted)

    @property
    def commitments(self) -> tuple[Commitment, ...]:
        """One for each request that it answers."""
        return self.batch or (Commitment(self.salt, self.request),)

    def still_in(self, graph: Graph) -> str | None:
        """Which kind of deleted data is still in `graph`, in words that name nobody, or None."""
        from graphforget.certificates.deleted_data import find_deleted
        from graphforget.graph.distributed_graph import DistributedGraph

        if not self.released:
            return None
        return graph.search(self.hashes()) if isinstance(graph, DistributedGraph) else find_deleted(self, graph)

    def hashes(self) -> dict[str, Any]:
        """What a search for deleted data needs of it: `from_dict` reads it, without the account."""
        return self.to_dict() | {"account": {}, "batch": []}

    @property
    def digest(self) -> str:
        """The digest of the annex in the certificate. It covers all fields."""
        return salted_hash(self.salt, "annex", json.dumps(self.to_dict(), sort_keys=True))

    def weights(self, theta: Tensor) -> str:
        """The digest of private weights in the certificate."""
        return weights_digest(theta, salt=self.salt)

    def state(self, state_summary: Mapping[str, Any]) -> str:
        """The digest, in the certificate, of what is recorded of a model beside its weights."""
        return salted_hash(self.salt, "state", json.dumps(state_summary, sort_keys=True))

    def to_dict(self) -> dict[str, Any]:
        return {
            "salt": self.salt.hex(),
            "request": self.request,
            "nodes": sorted(self.nodes),
            "edges": sorted(self.edges),
            "attributes": {h: c if c == "all" else _as_bits(c) for h, c in sorted(self.attributes.items())},
            **({"edge_tags": sorted(self.edge_tags)} if self.edge_tags else {}),
            **({"graphs": sorted(self.graphs)} if self.graphs else {}),
            **({"labels": sorted(self.labels)} if self.labels else {}),
            **({"edge_weights": sorted(self.edge_weights)} if self.edge_weights else {}),
            **({"readmitted": self.readmitted.to_dict()} if self.readmitted is not None else {}),
            "account": dict(self.account),
            "released": self.released,
            **({"batch": [{"salt": c.salt.hex(), "digest": c.digest} for c in self.batch]} if self.batch else {}),
        }

    @classmethod
    def from_dict(cls, content: Any) -> Annex:
        """Reads the result of `to_dict`. Raises `InputError` for anything else."""
        try:
            return cls._of(read_fields(_AnnexFile, content, "an annex"))
        except InputError as error:
            raise InputError(f"this is no annex of a certificate: {error}") from error

    @classmethod
    def _of(cls, given: _AnnexFile) -> Annex:
        for name in ("nodes", "edges", "attributes", "graphs", "labels", "edge_weights"):
            if not all(map(HASH.fullmatch, getattr(given, name))):
                raise InputError(f"its {name} are not hashes of 64 hexadecimal digits")
        if not all(map(TAG.fullmatch, given.edge_tags)):
            raise InputError("its edge tags are not tags of 16 hexadecimal digits")
        tags, edges = len(set(given.edge_tags)), len(set(given.edges))
        if tags and not tags <= edges <= 2 * tags:  # both directions of a directed edge have one tag
            raise InputError(f"it has {edges} edges and {tags} edge tags")
        if not HASH.fullmatch(given.salt) or not HASH.fullmatch(given.request):
            raise InputError("its salt and its digest must have 64 hexadecimal digits")
        if not all(HASH.fullmatch(text) for one in given.batch for text in (one.salt, one.digest)):
            raise InputError("the salts and digests of its batch must have 64 hexadecimal digits")
        if not isinstance(given.account.get("measured", {}), dict):
            raise InputError("what was measured is no object")
        return cls(
            salt=bytes.fromhex(given.salt),
            request=given.request,
            nodes=frozenset(given.nodes),
            edges=frozenset(given.edges),
            attributes={h: "all" if c == "all" else _from_bits(c) for h, c in given.attributes.items()},
            graphs=frozenset(given.graphs),
            labels=frozenset(given.labels),
            edge_weights=frozenset(given.edge_weights),
            readmitted=None if given.readmitted is None else HashedItems.from_dict(given.readmitted),
            account=given.account,
            released=given.released,
            edge_tags=frozenset(given.edge_tags),
            batch=tuple(Commitment(bytes.fromhex(one.salt), one.digest) for one in given.batch),
        )


@dataclass(frozen=True)
class _CommitmentFile:
    """A commitment as it stands in a file."""

    salt: str
    digest: str


@dataclass(frozen=True)
class _AnnexFile:
    """An annex as it stands in a file."""

    salt: str
    request: str
    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    attributes: dict[str, Any]
    account: dict[str, Any] = field(default_factory=dict)  # from here on missing in an earlier format
    released: bool = True
    graphs: tuple[str, ...] = ()
    edge_tags: tuple[str, ...] = ()
    batch: tuple[_CommitmentFile, ...] = ()
    labels: tuple[str, ...] = ()
    edge_weights: tuple[str, ...] = ()
    readmitted: dict[str, Any] | None = None


def request_digest(request: Request | Update, salt: bytes) -> str:
    """A salted digest of a request, the same for every order of the things that it names."""
    if isinstance(request, Update):
        return salted_hash(salt, "update", request.graph.digest)
    nodes = sorted(str(node) for node in request.nodes)
    edges = sorted([str(u), str(v)] for u, v in request.edges)
    listed = {c: c if c == "all" else sorted(map(str, c)) for c in set(request.attributes.values())}
    known = {columns: salted_hash(salt, "columns", json.dumps(names)) for columns, names in listed.items()}
    attributes = sorted([str(node), known[columns]] for node, columns in request.attributes.items())
    graphs, labels = sorted(map(str, request.graphs)), sorted(map(str, request.labels))
    weights = sorted([str(u), str(v)] for u, v in request.edge_weights)
    more: list[Any] = [graphs, labels, weights]
    while more and not more[-1]:  # shorter lists are those of earlier versions
        more.pop()
    return salted_hash(salt, "request", json.dumps([nodes, edges, attributes, *more]))


def digest_of_all(digests: Sequence[str]) -> str:
    """The digest of requests that were answered together, from their salted digests; of one request its own.

    It needs no salt, since the digests have theirs. So it can be checked with the public ledger alone.
    """
    return digests[0] if len(digests) == 1 else salted_hash(b"", "requests", *digests)


def weights_digest(theta: Tensor, *, salt: bytes = b"") -> str:
    """SHA-256 of flat parameters as little-endian float64; the order of numbers is that of the model's parameters."""
    content = theta.detach().cpu().double().contiguous().numpy().astype("<f8").tobytes()
    return hashlib.sha256(b"graphforget-weights-1" + framed(salt) + content).hexdigest()


def released_digest(theta: Tensor, state: Mapping[str, Tensor]) -> str:
    """SHA-256 of a release: the weights, and the tensors that are released beside them, each with its name."""
    weights = weights_digest(theta)
    if not state:
        return weights
    sha = hashlib.sha256(b"graphforget-release-1" + framed(weights.encode()))
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        header = json.dumps([name, str(value.dtype), list(value.shape)]).encode()
        sha.update(framed(header) + framed(value.numpy().tobytes()))
    return sha.hexdigest()


def _as_bits(columns: tuple[int, ...]) -> str:
    """Column numbers as the bits of a hexadecimal number, which is short also for many columns."""
    import numpy as np

    bits = np.zeros(8 + max(columns, default=0), dtype=bool)
    bits[list(columns)] = True
    return np.packbits(bits, bitorder="little").tobytes().hex()


def _from_bits(text: Any) -> tuple[int, ...]:
    bytewise = isinstance(text, str) and len(text) % 2 == 0 and len(text) <= MOST_COLUMNS // 4
    if not bytewise or not re.fullmatch("[0-9a-f]*[1-9a-f][0-9a-f]*", text):
        raise InputError("its columns are not the bits of a hexadecimal number")
    import numpy as np

    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits).tolist())
