"""The content of a report on a run directory, or on an outcome and the graph before it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sklearn.decomposition import PCA
from torch import Tensor

from graphforget.certificates.chain import REFUSED
from graphforget.certificates.conditions import sentence
from graphforget.certificates.document import Certificate
from graphforget.certificates.releases import Composition, compose_since_training
from graphforget.errors import Mismatch
from graphforget.graph.graph import Graph
from graphforget.json_files import parse_json
from graphforget.linalg.sparse import to_scipy
from graphforget.models.items import GRAPH, LINK, NODE
from graphforget.report.figures import Role, accuracy_figure, footprint_figure, residual_figure
from graphforget.report.page import CheckRow, Picture, ReportContent
from graphforget.request.footprint import Footprint
from graphforget.request.request import Request
from graphforget.runs.history import read_history
from graphforget.runs.verify import verify_run
from graphforget.training.score_names import SHARES, SHOWN, stored_scores
from graphforget.verification.verify import Verification

Scene = tuple[np.ndarray, np.ndarray, list[Role], dict[Role, str]]


def run_content(
    run: str | Path, *, key: Ed25519PublicKey | None = None, private: bool = False, **own: Any
) -> ReportContent:
    """The report on the last deletion of a run directory, which is verified now. It names nobody.

    With `private` it includes what was measured, and must not be published. `own` is the user's own module and loss, as
    `verify_run` takes them. Raises `Mismatch` if the verification fails.
    """
    verification = verify_run(run, key=key, **own)
    history = read_history(run)
    last = [entry for entry in history.entries if entry.level != REFUSED][-1]
    public = parse_json(last.answer)
    certificate = Certificate.from_dict(public["certificate"])
    ledger, delta = history.ledger, float(certificate.settings["delta"])
    composed = compose_since_training(ledger.releases, ledger.certificates, delta=delta)
    account = history.annex_of(last).account if private else None
    try:
        return outcome_content(certificate, public, verification, composed=composed, account=account)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a forged answer can lack any field
        raise Mismatch(f"the last answer of {run} cannot be shown: {type(error).__name__}: {error}") from error


def outcome_content(
    certificate: Certificate,
    public: Mapping[str, Any],
    verification: Verification,
    *,
    composed: Composition,
    account: Mapping[str, Any] | None = None,
    requests: Sequence[str] = (),
    pictures: Sequence[Picture] = (),
    scores: Mapping[str, float] | None = None,
    planted: Sequence[CheckRow] = (),
) -> ReportContent:
    """The report on one outcome: its certificate, public answer and verification, and its private account if given."""
    is_private = bool(account is not None or requests or pictures)
    account = account or {}
    return ReportContent(
        title="A deletion from a graph neural network",
        audience="private: it depends on what was deleted" if is_private else "public: it may be shown",
        made=certificate.made,
        level=certificate.level,
        statement=certificate.statement,
        facts=_facts(certificate, account),
        requests=tuple(requests),
        pictures=(*pictures, *_measured_pictures(certificate, public, account, scores)),
        guaranteed=(f"Level {certificate.level!r}: {certificate.definition}.", f"Here: {certificate.statement}."),
        proven=certificate.level != "empirical",
        not_guaranteed=certificate.not_covered,
        checks=tuple(CheckRow(check.name, True, check.result) for check in verification.checks),
        planted=tuple(planted),
        conditions=_conditions(certificate, account),
        unchecked=verification.unchecked,
        notes=tuple(account.get("notes", ())),
        certificate=json.dumps(certificate.to_dict(), indent=2),
        composed=_composition(composed, certificate),
    )


def _measured_pictures(
    certificate: Certificate,
    public: Mapping[str, Any],
    account: Mapping[str, Any],
    scores: Mapping[str, float] | None,
) -> list[Picture]:
    pictures = []
    distances = account.get("details", {}).get("distances")
    if distances:
        pictures.append(
            Picture(
                "Distance to the optimum on the retained graph",
                residual_figure(distances, certificate.tolerance or 0.0),
                "An upper bound on the distance, measured after every Newton step on the retained graph. Under the "
                "dashed line the noise hides the difference as well as epsilon and delta ask for.",
            )
        )
    stored = stored_scores(public)
    name = next(iter(stored))
    released = stored[name]["released"]
    scores = scores or ({} if released is None else {"released": released})
    if scores:
        word = certificate.model["name"].split("-")[0]
        tested = f"test {word if word in (LINK, GRAPH) else NODE}s"
        title, caption = SHOWN[name], f"The {SHOWN[name]} of the predictions for the {tested}, on the retained graph."
        if list(stored) == ["micro_f1"]:
            title, caption = "Accuracy", f"Share of the {tested} that are classified correctly, on the retained graph."
        pictures.append(Picture(title, accuracy_figure(scores, percent=name in SHARES), caption))
    return pictures


def _conditions(certificate: Certificate, account: Mapping[str, Any]) -> tuple[tuple[str, str, str, str], ...]:
    """The conditions of the claim: as they were measured if the account has that, else as a list."""
    measured = account.get("measured", {}).get("conditions", ())
    if measured:
        return tuple(
            (sentence(c["name"]), _number(c["measured"]), _number(c["threshold"]), c["verdict"]) for c in measured
        )
    return tuple((sentence(name), "-", "-", "listed") for name in certificate.conditions if not certificate.claim.void)


def footprint_picture(graph: Graph, request: Request, touched: Footprint) -> Picture:
    """A request and its footprint in the graph before the request. It is private: it shows what was deleted."""
    svg = footprint_figure(*footprint_scene(graph, request, touched))
    return Picture("What the request touches", svg, "Nodes are placed by the two main directions of their attributes.")


def footprint_scene(graph: Graph, request: Request, touched: Footprint) -> Scene:
    """The arguments of `figures.draw_footprint`: positions, edges, roles, labels."""
    resolved = request.resolve(graph)
    roles: list[Role] = ["untouched"] * graph.num_nodes
    changed = torch.cat([resolved.full_rows, resolved.partial_rows, resolved.label_rows, resolved.edge_ends])
    of_role: dict[Role, Tensor] = {"affected": touched.reached, "changed": changed, "removed": resolved.node_rows}
    for role, rows in of_role.items():
        for row in rows.tolist():
            roles[row] = role
    affected, removed = touched.affected.numel(), touched.removed.numel()
    rest = graph.train_rows.numel() - affected - removed
    labels: dict[Role, str] = {
        "removed": "node that goes",
        "changed": "edge, attributes or label that go",
        "affected": f"loss may change ({affected} training nodes)",
        "untouched": f"loss stays the same ({rest} training nodes)",
    }
    return _positions(graph), graph.edge_index.numpy(), roles, labels


def _positions(graph: Graph) -> np.ndarray:
    """The nodes on the two main directions of their attributes; on the attributes themselves, if there are no more."""
    if graph.x.shape[1] > 2:
        return PCA(2, random_state=0).fit_transform(to_scipy(graph.x))
    x = (graph.x if graph.x.layout == torch.strided else graph.x.to_dense()).numpy()
    return np.pad(x, ((0, 0), (0, 2 - x.shape[1])))


def _facts(certificate: Certificate, account: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    facts = [
        ("certificate", certificate.id),
        ("model", f"{certificate.model['name']}, {certificate.model['parameters']:,} parameters"),
        ("method", certificate.method),
        ("epsilon", _number(certificate.epsilon)),
        ("delta", _number(certificate.delta)),
        ("noise, sigma", _number(certificate.sigma)),
        ("tolerance", _number(certificate.tolerance)),
        ("releases left", "-" if certificate.releases_left is None else str(certificate.releases_left)),
        *((f"chosen for this request: {name}", str(value)) for name, value in certificate.chosen.items()),
        ("signed by", certificate.signature["public_key"] if certificate.signature else "nobody"),
    ]
    if account:
        touched, measured = account["footprint"], account["measured"]
        facts += [
            ("way taken", account["method"]),
            ("training losses", f"{touched['removed']:,} removed, {touched['affected']:,} may have changed"),
            ("distance, at most", _number(measured.get("distance"))),
            ("epsilon by the distance measured", _number(measured.get("epsilon_measured"))),
            ("time taken", f"{account['seconds']:.2f} s"),
        ]
    return tuple((name, value) for name, value in facts if value != "-")


def _composition(composed: Composition, certificate: Certificate) -> tuple[str, ...]:
    if composed.epsilon is None:
        return (f"There is no epsilon for all {composed.releases} releases together: {composed.reason}.",)
    promise = f"epsilon = {composed.epsilon:.3g} at delta = {composed.delta:g}"
    left = "" if certificate.releases_left is None else f"; {certificate.releases_left} more are covered"
    count = composed.releases
    releases = "1 release so far guarantees" if count == 1 else f"All {count} releases so far together guarantee"
    return (f"{releases} {promise}{left}.",)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
