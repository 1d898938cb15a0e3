"""The private annex of a certificate: salted hashes of what was deleted, and everything that was measured.

Whoever has it can check that nothing deleted is in a graph, and that a certificate belongs to given weights and to a
given request. It is private: anybody who has it can test guesses of names against the hashes, and what was measured
depends on what was deleted. Without its salt nobody can test guesses against the certificate's digests of the request,
of the annex and of the private weights.

Requests that were answered together have one annex. Each has a digest with a salt of its own, so that whoever made one
of them can be shown that it is in the certificate, and learns nothing about the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from graphforget.errors import InputError
from graphforget.privacy.salt import new_salt
from graphforget.validation import read_fields

if TYPE_CHECKING:
    from torch import Tensor

    from graphforget.graph.graph import Graph
    from graphforget.request.request import Request

HASH = re.compile("[0-9a-f]{64}")
MOST_COLUMNS = 2**24

Columns = Literal["all"] | tuple[int, ...]


@dataclass(frozen=True)
class Commitment:
    """The salted digest of one request. Whoever has the salt can check which request it is."""

    salt: bytes
    digest: str

    @classmethod
    def of(cls, request: Request) -> Commitment:
        """A commitment to the request with a fresh salt."""
        salt = new_salt()
        return cls(salt, request_digest(request, salt))

    def is_of(self, request: Request) -> bool:
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
    batch: tuple[Commitment, ...] = ()  # of requests that were answered together; none for a single request

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
        salt = new_salt() if salt is None else salt
        batch = tuple(map(Commitment.of, requests)) if len(requests) > 1 else ()
        resolved = request.resolve(graph)
        graphs = graph.numbers_by_name(request.graphs) if request.graphs else []
        columns: dict[int, Columns] = dict.fromkeys(resolved.full_rows.tolist(), "all")
        rows, counts = resolved.partial_rows.unique_consecutive(return_counts=True)  # a node's columns stand together
        for row, part in zip(rows.tolist(), resolved.partial_columns.split(counts.tolist()), strict=True):
            columns[row] = tuple(part.sort().values.tolist())
        removed = graph.edge_index[:, resolved.edge_mask]
        return cls(
            salt=salt,
            request=digest_of_all([one.digest for one in batch]) if batch else request_digest(request, salt),
            nodes=frozenset(_hashes(salt, "node", ((_identity(graph, row),) for row in resolved.node_rows.tolist()))),
            edges=frozenset(_edge_hashes(salt, graph, removed)),
            attributes={_hash(salt, "attributes", _identity(graph, row)): c for row, c in columns.items()},
            graphs=frozenset(_graph_hashes(salt, graph, graphs)),
            account=dict(account or {}),
            batch=batch,
        )

    @property
    def commitments(self) -> tuple[Commitment, ...]:
        """One for each request that it answers."""
        return self.batch or (Commitment(self.salt, self.request),)

    def still_in(self, graph: Graph) -> str | None:
        """Which kind of deleted data is still in `graph`, in words that name nobody, or None."""
        if not self.released:
            return None
        identities = [_identity(graph, row) for row in range(graph.num_nodes)]
        if self.nodes and any(h in self.nodes for h in _hashes(self.salt, "node", ((i,) for i in identities))):
            return "a node that was to be forgotten"
        numbers = graph.numbers_of_graphs.tolist() if self.graphs and graph.graph_numbers is not None else []
        if not self.graphs.isdisjoint(_graph_hashes(self.salt, graph, numbers)):
            return "a graph that was to be forgotten"
        if self.edges and any(h in self.edges for h in _edge_hashes(self.salt, graph, graph.edge_index)):
            return "an edge that was to be forgotten"
        hashes = _hashes(self.salt, "attributes", ((i,) for i in identities)) if self.attributes else ()
        for row, columns in enumerate(map(self.attributes.get, hashes)):
            if columns is None:
                continue
            values = graph.x[row].to_dense()
            if columns != "all" and columns[-1] >= graph.num_columns:
                return "the attribute of a column that the graph does not have"
            if (values if columns == "all" else values[list(columns)]).any():
                return "an attribute value that was to be forgotten"
        return None

    @property
    def digest(self) -> str:
        """The digest of the annex in the certificate. It covers all fields."""
        return _hash(self.salt, "annex", json.dumps(self.to_dict(), sort_keys=True))

    def weights(self, theta: Tensor) -> str:
        """The digest of private weights in the certificate."""
        return weights_digest(theta, salt=self.salt)

    def state(self, state_summary: Mapping[str, Any]) -> str:
        """The digest, in the certificate, of what is recorded of a model beside its weights."""
        return _hash(self.salt, "state", json.dumps(state_summary, sort_keys=True))

    def to_dict(self) -> dict[str, Any]:
        return {
            "salt": self.salt.hex(),
            "request": self.request,
            "nodes": sorted(self.nodes),
            "edges": sorted(self.edges),
            "attributes": {h: c if c == "all" else _as_bits(c) for h, c in sorted(self.attributes.items())},
            **({"graphs": sorted(self.graphs)} if self.graphs else {}),
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
        for name in ("nodes", "edges", "attributes", "graphs"):
            if not all(map(HASH.fullmatch, getattr(given, name))):
                raise InputError(f"its {name} are not hashes of 64 hexadecimal digits")
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
            account=given.account,
            released=given.released,
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
    batch: tuple[_CommitmentFile, ...] = ()


def request_digest(request: Request, salt: bytes) -> str:
    """A salted digest of a request, the same for every order of its nodes, edges, attributes and graphs."""
    nodes = sorted(str(node) for node in request.nodes)
    edges = sorted([str(u), str(v)] for u, v in request.edges)
    listed = {c: c if c == "all" else sorted(map(str, c)) for c in set(request.attributes.values())}
    known = {columns: _hash(salt, "columns", json.dumps(names)) for columns, names in listed.items()}
    attributes = sorted([str(node), known[columns]] for node, columns in request.attributes.items())
    graphs = [sorted(map(str, request.graphs))] if request.graphs else []
    return _hash(salt, "request", json.dumps([nodes, edges, attributes, *graphs]))


def digest_of_all(digests: Sequence[str]) -> str:
    """The digest of requests that were answered together, from their salted digests; of one request its own.

    It needs no salt, since the digests have theirs. So it can be checked with the public ledger alone.
    """
    return digests[0] if len(digests) == 1 else _hash(b"", "requests", *digests)


def weights_digest(theta: Tensor, *, salt: bytes = b"") -> str:
    """SHA-256 of flat parameters as little-endian float64; the order of numbers is that of the model's parameters."""
    content = theta.detach().cpu().double().contiguous().numpy().astype("<f8").tobytes()
    return hashlib.sha256(b"graphforget-weights-1" + _framed(salt) + content).hexdigest()


def released_digest(theta: Tensor, state: Mapping[str, Tensor]) -> str:
    """SHA-256 of a release: the weights, and the tensors that are released beside them, each with its name."""
    weights = weights_digest(theta)
    if not state:
        return weights
    sha = hashlib.sha256(b"graphforget-release-1" + _framed(weights.encode()))
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        header = json.dumps([name, str(value.dtype), list(value.shape)]).encode()
        sha.update(_framed(header) + _framed(value.numpy().tobytes()))
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


def _identity(graph: Graph, row: int) -> str:
    """The permanent name of a node: its subject id, or its number if the graph has no subject ids."""
    return graph.subject_ids[row] if graph.subject_ids is not None else str(int(graph.numbers[row]))


def _graph_hashes(salt: bytes, graph: Graph, numbers: Iterable[int]) -> Iterable[str]:
    return _hashes(salt, "graph", ((str(graph.name_of_graph(number)),) for number in numbers))


def _edge_hashes(salt: bytes, graph: Graph, edges: Tensor) -> Iterable[str]:
    pairs = edges.T.tolist() if graph.directed else edges[:, edges[0] <= edges[1]].T.tolist()
    names = ((_identity(graph, u), _identity(graph, v)) for u, v in pairs)
    return _hashes(salt, "edge", names if graph.directed else map(sorted, names))


def _hashes(salt: bytes, kind: str, things: Iterable[Iterable[str]]) -> Iterable[str]:
    return (_hash(salt, kind, *parts) for parts in things)


def _hash(salt: bytes, kind: str, *parts: str) -> str:
    return hashlib.sha256(b"".join(map(_framed, (salt, kind.encode(), *(part.encode() for part in parts))))).hexdigest()


def _framed(part: bytes) -> bytes:
    """The part after its length, so that different lists of parts never give the same bytes."""
    return len(part).to_bytes(8, "little") + part
