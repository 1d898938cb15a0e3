"""Checks that a run directory agrees with its last certificate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import graph_digest
from graphforget.errors import Mismatch
from graphforget.graph.graph import Graph
from graphforget.runs.history import History
from graphforget.runs.layout import ANNEX, CERTIFICATE
from graphforget.training.trained import Trained


def check_state(place: Path, trained: Trained, graph: Graph, history: History) -> None:
    """Raises `Mismatch` unless the run agrees with its last certificate, before anything new is signed."""
    if not history.entries and history.earlier is None:
        if trained.history or any((place / name).exists() for name in (CERTIFICATE, ANNEX)):
            raise Mismatch(f"{place} has answered a request before, and its ledger is missing")
        return
    ledger = history.ledger
    trained = as_certified(trained, ledger.releases)
    last = ledger.last_release
    if last is None:
        return
    certificate, annex = Certificate.read(place / CERTIFICATE), history.own_annexes[last]
    if certificate.digest != ledger.releases[last].certificate_digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    digests = {
        "annex": annex.digest,
        "state": annex.state(trained.state_summary()),
        "graph": trained.graph_commitment(graph, digest=graph_digest(certificate, graph)),
        "weights": annex.weights(trained.theta),
    }
    for name, digest in digests.items():
        if certificate.digests[name] != digest:
            raise Mismatch(f"{name}: does not match the last certificate")
    check_annexes(history)


def check_annexes(history: History) -> None:
    """Raises `Mismatch` unless every annex, also that of a refusal, is the one that its entries name."""
    if history.ledger.annex_digests != tuple(annex.digest for annex in history.own_annexes):
        raise Mismatch("the ledger and the annexes are about different requests")


def as_certified(trained: Trained, releases: tuple[Entry, ...]) -> Trained:
    """The model at its last certificate: without the releases that were refused, and counted, since then.

    Raises `Mismatch` if the model does not count them.
    """
    refused: list[float] = []
    for entry in reversed(releases):
        if entry.level != REFUSED:
            break
        refused += [entry.ratio] if entry.ratio else []  # exact ones are not counted
    if not refused:
        return trained
    if list(trained.releases[-len(refused) :]) != refused[::-1]:
        raise Mismatch("the model does not count a release that was refused")
    return dataclasses.replace(trained, releases=trained.releases[: -len(refused)])
