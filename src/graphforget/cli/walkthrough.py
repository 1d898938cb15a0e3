"""The demo: one deletion on the embedded patients graph, step by step."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import load_file, save_file

from graphforget.certificates.annex import weights_digest
from graphforget.certificates.document import Certificate
from graphforget.certificates.signing import make_keys, private_key, public_key
from graphforget.datasets.registry import load
from graphforget.errors import Mismatch
from graphforget.graph.graph import Graph
from graphforget.models.registry import MODELS
from graphforget.privacy.noise import with_noise
from graphforget.progress import Progress
from graphforget.report.content import footprint_picture, outcome_content
from graphforget.report.page import CheckRow, check_output_path, write
from graphforget.request.footprint import footprint
from graphforget.request.request import Request
from graphforget.runs.apply import answer, save_outcome
from graphforget.runs.history import read_history
from graphforget.runs.layout import CERTIFICATE, RELEASED
from graphforget.runs.released import releases_so_far
from graphforget.runs.verify import verify_run
from graphforget.runs.write import rewrite_checksums, save_run
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.plan import plan
from graphforget.unlearning.unlearn import unlearn
from graphforget.verification.verify import Verification

Say = Callable[[str], None]

SIGMA = 0.01
REQUEST_ID = "demo-1"
MISSED = "every check holds"
FORGED = "the old weights, certified and signed again"


@dataclasses.dataclass(frozen=True)
class Start:
    """The model and the graph before the deletion, and the request."""

    graph: Graph
    trained: Trained
    request: Request
    wishes: tuple[str, ...]  # the request in sentences


@dataclasses.dataclass(frozen=True)
class Verified:
    """The answer of the request in a run directory, verified."""

    run: Path
    key: Ed25519PrivateKey
    summary: dict[str, Any]
    outcome: Outcome
    certificate: Certificate
    verification: Verification


def run_demo(report: Path, *, progress: Progress | None = None, say: Say | None = None) -> dict[str, Any]:
    """Trains, forgets, certifies, verifies, detects five planted failures and writes the report. Returns the JSON."""
    check_output_path(report)
    say = say or (lambda sentence: None)
    started = time.perf_counter()
    start = _train_and_plan(say, progress)
    with tempfile.TemporaryDirectory(prefix="graphforget-demo-") as folder:
        verified = _answer_and_verify(start, Path(folder), say, progress)
        planted = _plant_cheats(start, verified, Path(folder), say)
        retrained = unlearn(start.trained, start.graph, start.request, method="retrain", progress=progress)
        scores, distances = _scores(start, verified.outcome, retrained), _distances(start, verified.outcome, retrained)
        _write_report(report, start, verified, scores, planted)
        entries = len(read_history(verified.run).entries)
    seconds = time.perf_counter() - started
    _say_results(say, scores, distances, report, seconds)
    return {
        "level": verified.certificate.level,
        "certificate": verified.certificate.to_dict(),
        "summary": verified.summary,
        "checks": [check.name for check in verified.verification.checks],
        "planted": {check.name: check.ok for check in planted},
        "ledger_entries": entries,
        "test_micro_f1": scores,
        "distance_to_retrained": distances,
        "report": str(report),
        "seconds": seconds,
    }


def _train_and_plan(say: Say, progress: Progress | None) -> Start:
    graph = load("patients", seed=0)
    trained = train(graph, "sgc", seed=0, sigma=SIGMA, progress=progress)
    say(
        f"Trained SGC on {graph.num_nodes} patients: test micro-F1 {100 * trained.micro_f1(graph):.2f} %, at most "
        f"{trained.residual:.1e} from the optimum. Every release will carry noise of sigma = {trained.recipe.sigma:g}."
    )
    say(
        f"The demo uses sigma = {SIGMA:g} instead of the default {MODELS['sgc'].sigma:g}, because a small graph loses "
        "accuracy to larger noise."
    )
    request, wishes = _request(graph)
    say("\nThe request:\n" + "\n".join(f"  - {line}" for line in wishes))
    planned = plan(trained, graph, request)
    say(
        f"\nPlan: {planned.affected + planned.training_nodes} of {graph.train_rows.numel()} training losses change, "
        f"expected level: {planned.level} (method {planned.method})."
    )
    return Start(graph, trained, request, wishes)


def _answer_and_verify(start: Start, folder: Path, say: Say, progress: Progress | None) -> Verified:
    run = folder / "run"
    private, public = make_keys(folder / "key")
    key = private_key(private)
    save_run(run, start.trained, start.graph)
    answered = answer(run, start.request, request_id=REQUEST_ID, key=key, progress=progress)
    assert answered.outcome is not None
    certificate, account = Certificate.read(run / CERTIFICATE), answered.summary["private"]
    say(f"\nUnlearned in {account['seconds']:.2f} s. Certificate ({certificate.level}): {certificate.statement}.")
    say(
        f"Measured (private): at most {account['measured']['distance']:.2g} from the optimum on the retained graph, "
        f"allowed {certificate.tolerance:.2g}. {certificate.releases_left} releases are left."
    )
    verification = verify_run(run, key=public_key(public))
    say(f"\nVerified without the deleted data: {len(verification.checks)} checks hold.")
    again = answer(run, start.request, request_id=REQUEST_ID, key=key)
    say(f"The same request id again: {'the first answer' if again.repeated else 'a new answer'}.")
    return Verified(run, key, answered.summary, answered.outcome, certificate, verification)


def _plant_cheats(start: Start, verified: Verified, folder: Path, say: Say) -> list[CheckRow]:
    """Spoils copies of the run, and checks that `verify` detects it."""
    planted = [_planted(name, spoil, verified.run, start.trained, folder) for name, spoil in CHEATS]
    planted.append(_forged_by_the_signer(verified.outcome, start.trained, verified.key, folder))
    for check in planted:
        say(f"Planted failure, {check.name}: {'caught' if check.ok else 'NOT CAUGHT'} ({check.detail}).")
    return planted


def _scores(start: Start, outcome: Outcome, retrained: Outcome) -> dict[str, float]:
    """Test micro-F1 on the retained graph."""
    models = {
        "old weights": start.trained,
        "released": outcome.released,
        "retrained": retrained.trained,
        "retrained, equally noised": retrained.released,
    }
    return {name: model.micro_f1(outcome.graph) for name, model in models.items()}


def _distances(start: Start, outcome: Outcome, retrained: Outcome) -> dict[str, float]:
    """The distances to the retrained weights."""
    weights = {"old weights": start.trained.theta, "unlearned": outcome.centre}
    return {name: float((theta - retrained.trained.theta).norm()) for name, theta in weights.items()}


def _write_report(
    report: Path, start: Start, verified: Verified, scores: dict[str, float], planted: list[CheckRow]
) -> None:
    touched = footprint(start.graph, start.request, start.trained.reach)
    story = outcome_content(
        verified.certificate,
        verified.summary,
        verified.verification,
        composed=releases_so_far(verified.run, delta=verified.certificate.delta or 1e-5),
        account=verified.summary["private"],
        requests=start.wishes,
        pictures=[footprint_picture(start.graph, start.request, touched)],
        scores=scores,
        planted=planted,
    )
    write(report, story)


def _say_results(say: Say, scores: dict[str, float], distances: dict[str, float], report: Path, seconds: float) -> None:
    say("\nTest micro-F1: " + ", ".join(f"{name} {100 * score:.2f} %" for name, score in scores.items()) + ".")
    before, after = distances["old weights"], distances["unlearned"]
    say(f"Distance to the retrained weights: {before:.3f} before, {after:.5f} after.")
    say(f"Report: {report} ({seconds:.1f} s in total).")


def _request(graph: Graph) -> tuple[Request, tuple[str, ...]]:
    """A patient withdraws consent, another one withdraws two columns, and a relation is removed."""
    assert graph.subject_ids is not None
    patient, other = (graph.subject_ids[row] for row in graph.train_rows[:2].tolist())
    friend = graph.subject_ids[int(graph.edge_index[0, graph.edge_index[1] == graph.row(other)][0])]
    columns = ["mean radius", "mean texture"]
    wishes = (
        f"{patient} withdraws consent",
        f"{other} withdraws two columns, {' and '.join(columns)}",
        f"the relation between {other} and {friend} is to be removed",
    )
    return Request(nodes=[patient], edges=[(other, friend)], attributes={other: columns}), wishes


def _planted(name: str, spoil: Callable[[Path, Trained], None], run: Path, old: Trained, place: Path) -> CheckRow:
    """Verifies a copy of the run with one part changed and with matching checksums."""
    copy = place / "spoilt"
    shutil.copytree(run, copy)
    try:
        spoil(copy, old)
        rewrite_checksums(copy)
        verify_run(copy)
    except Mismatch as mismatch:
        return CheckRow(name, True, str(mismatch))
    finally:
        shutil.rmtree(copy)
    return CheckRow(name, False, MISSED)


def _forged_by_the_signer(outcome: Outcome, old: Trained, key: Ed25519PrivateKey, place: Path) -> CheckRow:
    """The old weights, certified by somebody with the key and the salt: only the gradient differs."""
    theta, annex = old.theta + 1e-9, outcome.annex
    forged_model = outcome.trained.with_weights(theta).measured_on(old.objective(outcome.graph))
    released = with_noise(theta, sigma=old.recipe.sigma)
    digests = dict(outcome.certificate.digests) | {
        "weights": annex.weights(theta),
        "state": annex.state(forged_model.state_summary()),
        "graph": forged_model.graph_commitment(outcome.graph),
        "released": weights_digest(released),
    }
    certificate = dataclasses.replace(outcome.certificate, digests=digests)
    forged = dataclasses.replace(outcome, trained=forged_model, released_theta=released, certificate=certificate)
    try:
        verify_run(save_outcome(place / "forged", forged, key=key))
    except Mismatch as mismatch:
        return CheckRow(FORGED, True, str(mismatch))
    return CheckRow(FORGED, False, MISSED)


def _one_weight(run: Path, old: Trained) -> None:
    tensors = load_file(run / "weights.safetensors")
    tensors["theta"][0] += 1e-6
    save_file(tensors, run / "weights.safetensors")


def _nothing_done(run: Path, old: Trained) -> None:
    save_file({"theta": old.theta}, run / "weights.safetensors")


def _no_noise(run: Path, old: Trained) -> None:
    save_file({"theta": load_file(run / "weights.safetensors")["theta"]}, run / RELEASED)


def _smaller_epsilon(run: Path, old: Trained) -> None:
    content = json.loads((run / CERTIFICATE).read_text())
    claim = content["claim"] | {"epsilon": content["claim"]["epsilon"] / 10}
    (run / CERTIFICATE).write_text(json.dumps(content | {"claim": claim}))


CHEATS: tuple[tuple[str, Callable[[Path, Trained], None]], ...] = (
    ("one weight changed by 1e-6", _one_weight),
    ("the old weights under the new certificate", _nothing_done),
    ("the noise left out", _no_noise),
    ("a smaller epsilon written in", _smaller_epsilon),
)
