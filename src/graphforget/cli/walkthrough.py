"""The product's main job on the embedded patients graph, told step by step."""

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

Tell = Callable[[str], None]


def run_demo(report: Path, *, progress: Progress | None = None, tell: Tell | None = None) -> dict[str, Any]:
    """Trains, forgets, certifies, verifies, catches five cheats, and writes the report. Returns what was found."""
    check_output_path(report)
    say = tell or (lambda sentence: None)
    started = time.perf_counter()
    graph = load("patients", seed=0)
    trained = train(graph, "sgc", seed=0, sigma=0.01, progress=progress)
    say(
        f"Trained SGC on {graph.num_nodes} patients: test micro-F1 {100 * trained.micro_f1(graph):.2f} %, at most "
        f"{trained.residual:.1e} from the optimum. Every release will carry noise of sigma = {trained.recipe.sigma:g}."
    )
    request, words = _request(graph)
    say("\nThree people write in:\n" + "\n".join(f"  - {line}" for line in words))
    planned = plan(trained, graph, request)
    say(
        f"\nPlan: {planned.affected + planned.training_nodes} of {graph.train_rows.numel()} training losses change, "
        f"level in reach: {planned.level} (method {planned.method})."
    )
    with tempfile.TemporaryDirectory(prefix="graphforget-demo-") as place:
        run = Path(place) / "run"
        private, public = make_keys(Path(place) / "key")
        save_run(run, trained, graph)
        answered = answer(run, request, request_id="demo-1", key=private_key(private), progress=progress)
        certificate, summary = Certificate.read(run / CERTIFICATE), answered.summary
        account = summary["private"]
        say(f"\nUnlearned in {account['seconds']:.2f} s. Certificate ({certificate.level}): {certificate.statement}.")
        say(
            f"Measured, and kept private: at most {account['measured']['distance']:.2g} from the optimum without them, "
            f"allowed {certificate.tolerance:.2g}. {certificate.releases_left} releases are left."
        )
        found = verify_run(run, key=public_key(public))
        say(f"\nVerified without the deleted data: {len(found.checks)} checks hold.")
        again = answer(run, request, request_id="demo-1", key=private_key(private))
        say(f"The same request id asked again: {'the first answer' if again.repeated else 'a new answer'}.")
        planted = [_planted(name, spoil, run, trained, Path(place)) for name, spoil in CHEATS]
        assert answered.outcome is not None
        planted.append(_by_the_signer(answered.outcome, trained, private_key(private), Path(place)))
        for check in planted:
            say(f"Planted failure, {check.name}: {'caught' if check.ok else 'NOT CAUGHT'} ({check.detail}).")
        retrained = unlearn(trained, graph, request, method="retrain", progress=progress)
        retained = answered.outcome.graph
        scores = {
            "old weights": trained.micro_f1(retained),
            "released": answered.outcome.released.micro_f1(retained),
            "retrained": retrained.trained.micro_f1(retained),
            "retrained, equally noised": retrained.released.micro_f1(retained),
        }
        away = {
            name: float((theta - retrained.trained.theta).norm())
            for name, theta in (("old weights", trained.theta), ("unlearned", answered.outcome.centre))
        }
        story = outcome_content(
            certificate,
            summary,
            found,
            composed=releases_so_far(run, delta=certificate.delta or 1e-5),
            account=account,
            requests=words,
            pictures=[footprint_picture(graph, request, footprint(graph, request, trained.reach))],
            scores=scores,
            planted=planted,
        )
        write(report, story)
        entries = len(read_history(run).entries)
    say("\nTest micro-F1: " + ", ".join(f"{name} {100 * score:.2f} %" for name, score in scores.items()) + ".")
    moved = f"{away['old weights']:.3f} before, {away['unlearned']:.5f} after"
    say(f"Distance to the weights retrained without it: {moved}.")
    say(f"Report: {report} ({time.perf_counter() - started:.1f} s in all).")
    return {
        "level": certificate.level,
        "certificate": certificate.to_dict(),
        "summary": summary,
        "checks": [check.name for check in found.checks],
        "planted": {check.name: check.ok for check in planted},
        "ledger_entries": entries,
        "test_micro_f1": scores,
        "distance_to_retrained": away,
        "report": str(report),
        "seconds": time.perf_counter() - started,
    }


def _request(graph: Graph) -> tuple[Request, tuple[str, ...]]:
    """A patient withdraws consent, another two columns, a relation is removed."""
    assert graph.subject_ids is not None
    patient, other = (graph.subject_ids[row] for row in graph.train_rows[:2].tolist())
    friend = graph.subject_ids[int(graph.edge_index[0, graph.edge_index[1] == graph.row(other)][0])]
    columns = ["mean radius", "mean texture"]
    words = (
        f"{patient} withdraws consent",
        f"{other} withdraws two columns, {' and '.join(columns)}",
        f"the relation between {other} and {friend} is to be removed",
    )
    return Request(nodes=[patient], edges=[(other, friend)], attributes={other: columns}), words


def _planted(name: str, spoil: Callable[[Path, Trained], None], run: Path, old: Trained, place: Path) -> CheckRow:
    """A copy of the run with something wrong in it, checksums made to fit, held against `verify`."""
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
    return CheckRow(name, False, "verification found nothing wrong")


def _by_the_signer(outcome: Outcome, old: Trained, key: Ed25519PrivateKey, place: Path) -> CheckRow:
    """The old weights again, by somebody who holds key and salt and makes everything fit: the gradient tells."""
    theta, annex = old.theta + 1e-9, outcome.annex
    posing = outcome.trained.with_weights(theta).measured_on(old.objective(outcome.graph))
    released = with_noise(theta, sigma=old.recipe.sigma)
    digests = dict(outcome.certificate.digests) | {
        "weights": annex.weights(theta),
        "state": annex.state(posing.state_summary()),
        "graph": posing.graph_commitment(outcome.graph),
        "released": weights_digest(released),
    }
    certificate = dataclasses.replace(outcome.certificate, digests=digests)
    forged = dataclasses.replace(outcome, trained=posing, released_theta=released, certificate=certificate)
    try:
        verify_run(save_outcome(place / "forged", forged, key=key))
    except Mismatch as mismatch:
        return CheckRow("the old weights, certified and signed anew", True, str(mismatch))
    return CheckRow("the old weights, certified and signed anew", False, "verification found nothing wrong")


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
