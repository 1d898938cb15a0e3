"""Whether a run directory fits its last certificate."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.document import Certificate
from graphforget.errors import Mismatch
from graphforget.graph.graph import Graph
from graphforget.json_files import parse_json
from graphforget.runs.history import History
from graphforget.runs.layout import ANNEX, CERTIFICATE
from graphforget.training.trained import Trained
from graphforget.verification.entries import check_entries


def check_state(place: Path, trained: Trained, graph: Graph, record: History) -> None:
    """Nothing is built on, and nobody signs, what does not fit the last certificate. Raises `Mismatch`."""
    if not record.entries and record.earlier is None:
        if trained.history or any((place / name).exists() for name in (CERTIFICATE, ANNEX)):
            raise Mismatch(f"{place} has forgotten something before, and its ledger is missing")
        return
    certificates = check_entries(record.entries, follows=record.follows)
    trained = as_certified(trained, record.entries)
    released = [number for number, certificate in enumerate(certificates) if certificate is not None]
    if not released:
        return
    certificate, annex = Certificate.read(place / CERTIFICATE), record.own_annexes[released[-1]]
    if certificate.digest != record.entries[released[-1]].certificate_digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    digests = {
        "annex": annex.digest,
        "state": annex.state(trained.state_summary()),
        "graph": trained.graph_commitment(graph),
        "weights": annex.weights(trained.theta),
    }
    for name, digest in digests.items():
        if certificate.digests[name] != digest:
            raise Mismatch(f"{name}: not what the last certificate speaks of")
    check_annexes(record, certificates)


def check_annexes(record: History, certificates: Sequence[Certificate | None]) -> None:
    """Raises `Mismatch` unless every annex, also of what was refused, is the one that its entry speaks of."""
    for entry, certificate, annex in zip(record.entries, certificates, record.own_annexes, strict=True):
        digests = parse_json(entry.answer).get("digests") if certificate is None else certificate.digests
        if not isinstance(digests, Mapping) or digests.get("annex") != annex.digest:
            raise Mismatch("the ledger and the annexes speak of other requests")


def as_certified(trained: Trained, entries: tuple[Entry, ...]) -> Trained:
    """The model as its last certificate speaks of it: without the releases that were counted and refused since.

    Raises `Mismatch` if the model does not count them.
    """
    refused: list[float] = []
    for entry in reversed(entries):
        if entry.level != REFUSED:
            break
        refused += [entry.ratio] if entry.ratio else []  # exact ones are not counted
    if not refused:
        return trained
    if list(trained.releases[-len(refused) :]) != refused[::-1]:
        raise Mismatch("the model does not count a release that was refused")
    return dataclasses.replace(trained, releases=trained.releases[: -len(refused)])
