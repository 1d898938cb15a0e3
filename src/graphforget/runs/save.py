"""Saves the answer to requests in a run directory: a release, or a refusal.

certificate.json      the last release's certificate: public
released.safetensors  the weights with the certificate's noise: public
outcome.json          the last release's public answer
proofs.safetensors    the trees from which absence is shown: private
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import save as save_bytes

from graphforget.certificates.annex import Annex
from graphforget.certificates.chain import REFUSED
from graphforget.certificates.issue import Filing
from graphforget.certificates.ledger import Ledger
from graphforget.certificates.signing import entry_signer
from graphforget.errors import FloorMissed
from graphforget.files import read_bytes
from graphforget.graph.graph import Graph
from graphforget.runs.history import History, read_history
from graphforget.runs.layout import (
    ANNEX,
    CERTIFICATE,
    EARLIER_LEDGER,
    LEDGER,
    LIMITS,
    OUTCOME,
    PROOFS,
    RELEASED,
    SHARDS,
    open_run,
)
from graphforget.runs.write import write_run
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.verification.entries import answer_digest

BLOCK = 4096  # public files are padded to a multiple of it, so that their size does not reveal the length of a number


def save_release(
    folder: Path,
    outcome: Outcome,
    history: History,
    *,
    key: Ed25519PrivateKey | None,
    request_ids: Sequence[str],
    overwrite: bool,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Writes the run directory of an outcome, with an entry in its ledger for each of its requests.

    `more` are other files of the run, by name.
    """
    certificate, public = outcome.certificate, outcome.public()
    entry: dict[str, Any] = {
        "time": certificate.made,
        "certificate_digest": certificate.digest,
        "level": certificate.level,
        "ratio": certificate.claim.ratio,
        "answer": json.dumps(public, allow_nan=False),
    }
    files = {
        CERTIFICATE: public_json(certificate.to_dict()),
        OUTCOME: public_json(public),
        RELEASED: save_bytes(
            {"theta": outcome.released_theta.contiguous()} | outcome.trained.released_state,
            metadata={"certificate": certificate.id},
        ),
        **(more or {}),
    }
    entries = _entries(outcome.annex, request_ids, entry)
    _write(folder, outcome.trained, outcome.graph, history, outcome.annex, entries, files, key=key, overwrite=overwrite)


def save_refusal(
    run: Path,
    missed: FloorMissed,
    graph: Graph,
    history: History,
    *,
    filing: Filing,
    request_ids: Sequence[str],
) -> None:
    """Records in the ledger of `run` that noise was drawn and nothing was released.

    The model and its last release stay unchanged. A run that somebody else has changed in the meantime is left alone.
    """
    if read_history(run).head != history.head:
        return
    annex: Annex = missed.annex
    public = {
        "audience": "public",
        "level": REFUSED,
        "refused": str(missed),
        "digests": {"request": annex.request, "annex": annex.digest},
        "releases_left": missed.trained.releases_left,
    }
    entry: dict[str, Any] = {
        "time": filing.time,
        "certificate_digest": answer_digest(public),
        "level": REFUSED,
        "ratio": missed.ratio,
        "answer": json.dumps(public, allow_nan=False),
    }
    with open_run(run) as place:
        names = [name for name in (CERTIFICATE, OUTCOME, RELEASED, PROOFS, SHARDS) if (place / name).exists()]
        files = {name: read_bytes(place / name, largest=LIMITS[name]) for name in names}
    entries = _entries(annex, request_ids, entry)
    _write(run, missed.trained, graph, history, annex, entries, files, key=filing.key, overwrite=True)


def _entries(annex: Annex, request_ids: Sequence[str], shared: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of requests that were answered together: they differ in the id and in the digest of the request."""
    return [
        shared | {"request_id": request_id, "request_digest": commitment.digest}
        for request_id, commitment in zip(request_ids, annex.commitments, strict=True)
    ]


def _write(
    folder: Path,
    trained: Trained,
    graph: Graph,
    history: History,
    annex: Annex,
    entries: Sequence[dict[str, Any]],
    files: dict[str, bytes],
    *,
    key: Ed25519PrivateKey | None,
    overwrite: bool,
) -> None:
    """Writes the run directory with these entries at the end of its ledger."""

    def write_ledger(staging: Path) -> None:
        with Ledger(staging / LEDGER) as ledger:
            ledger.import_entries(history.chain)
            for entry in entries:
                ledger.append(follows=history.follows, sign=entry_signer(key) if key else None, **entry)

    annexes = {"audience": "private", "annexes": [one.to_dict() for one in (*history.annexes, annex)]}
    files = files | {ANNEX: json_bytes(annexes)}
    if history.earlier is not None:
        files[EARLIER_LEDGER] = history.earlier
    write_run(folder, trained, graph, overwrite=overwrite, extras=files, finish=write_ledger)


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def public_json(content: Any) -> bytes:
    """JSON, padded with spaces to a multiple of `BLOCK` bytes."""
    text = json_bytes(content)
    return text + b" " * (-len(text) % BLOCK)
