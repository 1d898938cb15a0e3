"""Puts together what a report tells: of a run directory, or of an outcome with its graph from before."""

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
from graphforget.certificates.releases import Composition
from graphforget.errors import Mismatch
from graphforget.graph.graph import Graph
from graphforget.json_files import parse_json
from graphforget.linalg.sparse import to_scipy
from graphforget.report.figures import Role, accuracy_figure, footprint_figure, residual_figure
from graphforget.report.page import CheckRow, Picture, Story
from graphforget.request.footprint import Footprint
from graphforget.request.request import Request
from graphforget.runs.history import read_history
from graphforget.runs.released import releases_so_far
from graphforget.runs.verify import verify_run
from graphforget.verification.verify import Verification

Scene = tuple[np.ndarray, np.ndarray, list[Role], dict[Role, str]]


def run_story(run: str | Path, *, key: Ed25519PublicKey | None = None, private: bool = False) -> Story:
    """Of a run directory's last deletion, verified now. Raises `Mismatch` where it does not hold; names nobody.

    With `private` it tells what was measured, too, and is not to be shown.
    """
    verification = verify_run(run, key=key)
    record = read_history(run)
    last = [entry for entry in record.entries if entry.level != REFUSED][-1]
    public = parse_json(last.answer)
    certificate = Certificate.from_dict(public["certificate"])
    together = releases_so_far(run, delta=float(certificate.settings["delta"]))
    account = record.annex_of(last).account if private else None
    try:
        return story_of(certificate, public, verification, together=together, account=account)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # whoever made it all fit can leave out anything
        raise Mismatch(f"the last answer of {run} cannot be told: {type(error).__name__}: {error}") from error


def story_of(
    certificate: Certificate,
    public: Mapping[str, Any],
    verification: Verification,
    *,
    together: Composition,
    account: Mapping[str, Any] | None = None,
    requests: Sequence[str] = (),
    pictures: Sequence[Picture] = (),
    scores: Mapping[str, float] | None = None,
    planted: Sequence[CheckRow] = (),
) -> Story:
    """Of one outcome: its certificate, its public answer and its verification; with the private account if given."""
    drawn = [*pictures]
    distances = (account or {}).get("details", {}).get("distances")
    if distances:
        drawn.append(
            Picture(
                "Distance to the optimum on the retained graph",
                residual_figure(distances, certificate.tolerance or 0.0),
                "An upper bound on the distance, measured after every Newton step on the retained graph. Under the "
                "dashed line the noise hides the difference as well as epsilon and delta ask for.",
            )
        )
    released = public["test_micro_f1"]["released"]
    scores = scores or ({} if released is None else {"released": released})
    if scores:
        caption = "Share of the test nodes that are classified rightly, on the retained graph."
        drawn.append(Picture("Accuracy", accuracy_figure(scores), caption))
    is_private = bool(account is not None or requests or pictures)
    measured = (account or {}).get("measured", {}).get("conditions", ())
    return Story(
        title="A deletion from a graph neural network",
        audience="private: it depends on what was deleted" if is_private else "public: it may be shown",
        made=certificate.made,
        level=certificate.level,
        statement=certificate.statement,
        facts=_facts(certificate, account),
        requests=tuple(requests),
        pictures=tuple(drawn),
        guaranteed=(f"Level {certificate.level!r}: {certificate.definition}.", f"Here: {certificate.statement}."),
        proven=certificate.level != "empirical",
        not_guaranteed=certificate.not_covered,
        checks=tuple(CheckRow(check.name, True, check.result) for check in verification.checks),
        planted=tuple(planted),
        conditions=tuple(
            (sentence(c["name"]), _number(c["measured"]), _number(c["threshold"]), c["verdict"]) for c in measured
        )
        or tuple((sentence(name), "-", "-", "listed") for name in certificate.conditions if not certificate.claim.void),
        unchecked=verification.unchecked,
        notes=tuple((account or {}).get("notes", ())),
        certificate=json.dumps(certificate.to_dict(), indent=2),
        composed=_together(together, certificate),
    )


def footprint_picture(graph: Graph, request: Request, touched: Footprint) -> Picture:
    """Where a request and its footprint lie in the graph that still held what it names; so it is for the operator."""
    svg = footprint_figure(*footprint_scene(graph, request, touched))
    return Picture("What the request touches", svg, "Nodes are placed by the two main directions of their attributes.")


def footprint_scene(graph: Graph, request: Request, touched: Footprint) -> Scene:
    """What `figures.draw_footprint` draws: places, edges, roles, labels."""
    what = request.resolve(graph)
    roles: list[Role] = ["untouched"] * graph.num_nodes
    asked = (what.full_rows, what.partial_rows, graph.edge_index[:, what.edge_mask].flatten())
    of_role: dict[Role, Tensor] = {"affected": touched.reached, "asked": torch.cat(asked), "removed": what.node_rows}
    for role, rows in of_role.items():
        for row in rows.tolist():
            roles[row] = role
    affected, removed = touched.affected.numel(), touched.removed.numel()
    rest = graph.train_rows.numel() - affected - removed
    labels: dict[Role, str] = {
        "removed": "node that goes",
        "asked": "edge or attributes that go",
        "affected": f"loss may change ({affected} training nodes)",
        "untouched": f"loss stays the same ({rest} training nodes)",
    }
    place = PCA(2, random_state=0).fit_transform(to_scipy(graph.x))
    return place, graph.edge_index.numpy(), roles, labels


def _facts(certificate: Certificate, account: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    known = [
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
    if account is not None:
        touched, measured = account["footprint"], account["measured"]
        known += [
            ("way taken", account["method"]),
            ("training losses", f"{touched['removed']:,} removed, {touched['affected']:,} may have changed"),
            ("distance, at most", _number(measured.get("distance"))),
            ("epsilon by the distance measured", _number(measured.get("epsilon_measured"))),
            ("time taken", f"{account['seconds']:.2f} s"),
        ]
    return tuple((name, value) for name, value in known if value != "-")


def _together(together: Composition, certificate: Certificate) -> tuple[str, ...]:
    if together.epsilon is None:
        return (f"There is no epsilon for all {together.releases} releases together: {together.reason}.",)
    promise = f"epsilon = {together.epsilon:.3g} at delta = {together.delta:g}"
    left = "" if certificate.releases_left is None else f"; {certificate.releases_left} more are covered"
    return (f"All {together.releases} releases so far together promise {promise}{left}.",)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
