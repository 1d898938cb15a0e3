"""Verification: what is true passes, and whoever claims more than they did is caught.

Every cheat is tried by three people. The naive one edits files. The clever one makes the run directory's checksums fit.
The very clever one has the whole library at hand: digests, annex, ledger and the numbers of run.json all fit, there is
no signature, and only recomputation is left (`forged`). What they can write down unnoticed is what is true: a weight
changed by 1e-6 is still within the certified distance, a larger epsilon holds as well, and noise from a seed that
somebody knows looks like any other. Against that there is the signature, and every such case is here with one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import Tensor

import graphforget as gf
from cases import idea, island, random_graph, train_without_noise
from graphforget.certificates.annex import Annex, weights_digest
from graphforget.certificates.chain import Chain, Entry, signed_bytes
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.residual_ball import DECLARED_CONVEX, ResidualBall
from graphforget.certificates.issue import algorithms, subject
from graphforget.certificates.ledger import Ledger
from graphforget.certificates.releases import counted_ratio
from graphforget.certificates.residual import residual
from graphforget.certificates.signing import check_entry_signature, entry_signer
from graphforget.linalg.newton import newton_cg
from graphforget.privacy.gaussian import tolerance
from graphforget.privacy.noise import grid, noise
from graphforget.runs.history import read_history
from graphforget.runs.layout import ANNEX, CERTIFICATE, LEDGER, OUTCOME, RELEASED
from graphforget.runs.read import _graph
from graphforget.runs.run_file import GraphFile
from graphforget.runs.write import rewrite_checksums
from graphforget.validation import read_fields
from graphforget.verification.entries import check_entries
from graphforget.verification.evidence import Evidence
from graphforget.verification.noise import (
    FALSE_ALARM,
    REUSE_FALSE_ALARM,
    check_fresh,
    check_gaussian,
    largest_detected_sigma,
)
from graphforget.verification.verify import CANNOT_BE_CHECKED

KEY = Ed25519PrivateKey.generate()
pytestmark = pytest.mark.usefixtures("one_thread")
SIGMA = 0.03
HOLDS = gf.Constants(strong_convexity=1e-4, lipschitz=100.0, loss_bound=100.0)  # of the models in these tests
WHO, OTHER = "patient-0017", "patient-0042"


# -- honest cases ----------------------------------------------------------------------------------------------------


@functools.cache
def patients() -> tuple[gf.Trained, gf.Graph]:
    graph = gf.load("patients")
    return gf.train(graph, "sgc", sigma=SIGMA), graph


def friend_of(graph: gf.Graph, who: str) -> str:
    assert graph.subject_ids is not None
    return graph.subject_ids[int(graph.edge_index[0, graph.edge_index[1] == graph.row(who)][0])]


def whole_request(graph: gf.Graph) -> gf.Request:
    return gf.Request(
        nodes=[WHO],
        edges=[(OTHER, friend_of(graph, OTHER))],
        attributes={OTHER: ["mean radius", "mean texture"]},
    )


@functools.cache
def outcome() -> gf.Outcome:
    """The honest one that most cheats start from."""
    trained, graph = patients()
    return gf.unlearn(trained, graph, whole_request(graph))


@functools.cache
def without_noise() -> gf.Trained:
    return train_without_noise(patients()[1], "sgc")


@functools.cache
def idea_outcome() -> gf.Outcome:
    graph = patients()[1]
    return idea(without_noise(), graph, whole_request(graph), constants=HOLDS)


@functools.cache
def exact_outcome() -> gf.Outcome:
    graph = patients()[1]
    return gf.unlearn(without_noise(), graph, whole_request(graph))


@functools.cache
def small() -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60)
    return gf.train(graph, "sgc", sigma=SIGMA), graph


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after two requests, the last one `outcome()`'s with another patient gone before. Not to be written to."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    gf.save_run(folder, *patients())
    gf.answer(folder, gf.Request(nodes=["patient-0300"]), request_id="first", key=KEY)
    gf.answer(folder, whole_request(patients()[1]), request_id="second", key=KEY)
    return folder


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(kept, tmp_path / "run"))


def verify(result: gf.Outcome, **more: Any) -> gf.Verification:
    given: dict[str, Any] = {"released": result.released_theta, "annexes": [result.annex]} | more
    return gf.verify(result.certificate, result.trained, result.graph, **given)


ALL = {
    *("claim", "retained graph", "model and objective", "weights"),
    *("released weights", "noise", "deleted data"),
}
OF_RUNS = {"signature", "ledger", "proofs of absence"}
REPLAY = "that training gives these weights: --replay trains again and compares, else the signer vouches"
ROLLBACK = "that this is not an older copy of the run: keep 'ledger --head' elsewhere and give it as --head"


def names(result: gf.Verification) -> set[str]:
    return {check.name for check in result.checks}


@pytest.mark.parametrize(
    ("model", "options"), [("sgc", {}), ("sign", {}), ("linearised-gcn", {"hidden": 5})], ids=lambda value: str(value)
)
@pytest.mark.parametrize("way", ["newton", "retrain", "exact"])
def test_an_honest_outcome_verifies(model: str, options: dict[str, Any], way: str, tmp_path: Path) -> None:
    """With noise every way is published as certified, without it as exact."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = (train_without_noise if way == "exact" else gf.train)(graph, model, **options)
    request = gf.Request(nodes=[4], attributes={6: [0, 1]})
    actual = gf.unlearn(trained, graph, request, method="auto" if way == "exact" else way)
    assert actual.level == {"newton": "certified", "retrain": "certified", "exact": "exact"}[way]
    result = verify(actual)
    assert names(result) == ALL
    chosen = "why this was chosen for this request, which may tell of it: method"
    gaps = [REPLAY] if way == "exact" else [*CANNOT_BE_CHECKED, chosen]
    assert list(result.unchecked) == ["signature", "fresh noise", "ledger", *gaps]
    assert result.to_dict() == {
        "audience": "public",
        "ok": True,
        "checks": {check.name: check.result for check in result.checks},
        "unchecked": list(result.unchecked),
    }
    gf.save_outcome(tmp_path / "run", actual, key=KEY)
    result = gf.verify_run(tmp_path / "run", key=KEY.public_key())
    assert names(result) == ALL | {"signature", "ledger"}
    assert list(result.unchecked) == ["fresh noise", *gaps, ROLLBACK]


@functools.cache
def network() -> tuple[gf.Trained, gf.Graph]:
    """Under a wide tolerance its training ended at a minimum, as IDEA assumes."""
    graph = random_graph(3, nodes=40, edges=60)
    return train_without_noise(graph, "gcn", hidden=5, epochs=30, polish_steps=10, tolerance=1e6), graph


@pytest.mark.slow
@pytest.mark.parametrize(("model", "audit"), [("sgc", True), ("sgc", False), ("gcn", False)])
@pytest.mark.parametrize("sigma", [None, 1e6], ids=["sized by the bound", "given"])
def test_an_honest_conditional_outcome_verifies(model: str, audit: bool, sigma: float | None, tmp_path: Path) -> None:
    trained, graph = network()
    if model == "sgc":
        trained = train_without_noise(graph, "sgc")
    actual = idea(trained, graph, gf.Request(nodes=[4]), audit=audit, constants=HOLDS, sigma=sigma)
    assert actual.level == "conditional"
    result = verify(actual)
    assert names(result) == ALL
    assert any(gap.startswith("what was measured of the conditions") for gap in result.unchecked)
    gf.save_outcome(tmp_path / "run", actual)
    assert names(gf.verify_run(tmp_path / "run")) == ALL | {"ledger"}


def test_an_honest_empirical_outcome_verifies(tmp_path: Path) -> None:
    trained, graph = small()
    result = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="retrain", start="continued")
    assert result.level == "empirical"
    message = {check.name: check.result for check in verify(result).checks}
    assert message["claim"] == "level 'empirical': nothing is claimed"
    gf.save_outcome(tmp_path / "run", result)
    assert "ledger" in names(gf.verify_run(tmp_path / "run"))


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_weights_that_nothing_touches_verify_unchanged(model: str, tmp_path: Path) -> None:
    """Nothing public tells that they did not change: claim and checks read as those of any other request."""
    graph = island()
    options: dict[str, Any] = {"hidden": 5, "epochs": 20, "polish_steps": 5} if model == "gcn" else {}
    trained = gf.train(graph, model, **options)
    result = gf.unlearn(trained, graph, gf.Request(edges=[(0, 1)]))
    other = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    assert result.level == ("certified" if model == "sgc" else "exact")
    assert torch.equal(result.trained.theta, trained.theta)
    assert not torch.equal(other.trained.theta, trained.theta)
    assert (result.private()["changed"], other.private()["changed"]) == (False, True)
    assert "changed" not in json.dumps(result.public())
    assert result.certificate.claim == other.certificate.claim
    message, others = ({check.name: check.result for check in verify(one).checks} for one in (result, other))
    assert message["claim"] == others["claim"]
    assert message["noise"] == others["noise"]
    gf.save_outcome(tmp_path / "run", result)
    assert gf.verify_run(tmp_path / "run").checks


def test_what_was_not_given_is_not_claimed() -> None:
    result = outcome()
    bare = gf.verify(result.certificate, result.trained, result.graph)
    assert names(bare) == ALL - {"weights", "released weights", "noise", "deleted data"}
    needed = ("signature", "weights", "released weights", "noise", "fresh noise", "deleted data", "ledger")
    assert bare.unchecked == (*needed, *CANNOT_BE_CHECKED)


def test_a_certificate_verifies_after_a_file(tmp_path: Path) -> None:
    for result in (outcome(), idea_outcome(), exact_outcome()):
        again = gf.Certificate.from_dict(json.loads(json.dumps(result.certificate.to_dict())))
        assert verify(dataclasses.replace(result, certificate=again)) == verify(result)


@pytest.mark.slow
@pytest.mark.parametrize("releases", [1, 7, 64, 400])
def test_every_epsilon_and_delta_that_can_be_asked_for_verifies(releases: int) -> None:
    """The tolerance is computed anew from them, and must not differ by rounding."""
    graph = small()[1]
    trained = gf.train(graph, "sgc", sigma=SIGMA, releases=releases)
    result = gf.unlearn(trained, graph, gf.Request(nodes=[4]), epsilon=0.05, delta=1e-7)
    near = residual(result.trained.objective(result.graph), result.trained.theta)
    alarms = []
    for epsilon in np.logspace(-1.3, 1.5, 20).tolist():
        for delta in (1e-7, 1e-5, 3e-3, 1e-2):
            claim = ResidualBall.issue(near, result.trained, epsilon=epsilon, delta=delta)
            again = forged(result, claim=claim, chosen={"epsilon": epsilon, "delta": delta})
            try:
                gf.verify(again.certificate, again.trained, again.graph)
            except gf.Mismatch as mismatch:
                alarms.append(str(mismatch))
    assert alarms == []


# -- the noise -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rightly_drawn_noise_gives_no_false_alarm() -> None:
    trained, graph = small()
    base = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    size, sigma = base.trained.theta.numel(), trained.recipe.sigma
    seen = set()
    for seed in range(200):
        actual = forged(base, released=base.centre + noise(size=size, sigma=sigma, seed=seed))
        result = verify(actual)
        assert "noise" in names(result)
        seen.add(next(check.result for check in result.checks if check.name == "noise"))
    assert len(seen) == 1  # nothing of the draws is told
    for _ in range(50):  # the noise that is really used
        assert verify(forged(base, released=base.trained.theta + noise(size=size, sigma=sigma)))


def drawn(size: int, kind: str) -> Tensor:
    """Noise of standard deviation 1 that is no Gaussian noise."""
    rng = np.random.default_rng(0)
    return torch.from_numpy(
        {
            "signs": lambda: rng.choice([-1.0, 1.0], size),
            "all the same": lambda: np.ones(size),
            "one weight only": lambda: np.sqrt(size) * np.eye(size)[0],
            "half of the weights": lambda: np.sqrt(2) * rng.standard_normal(size) * (np.arange(size) % 2),
        }[kind]()
    )


@pytest.mark.parametrize("kind", ["signs", "all the same", "one weight only", "half of the weights"])
def test_noise_that_is_not_gaussian_is_caught(kind: str, tmp_path: Path) -> None:
    graph = patients()[1]
    base = gf.unlearn(sign_model(), graph, whole_request(graph))
    theta = base.trained.theta
    assert theta.numel() > 200  # with few weights no test can tell
    cheat = forged(base, released=theta + 0.03 * drawn(theta.numel(), kind))
    assert_caught(cheat, tmp_path, "the noise in the released weights (is not Gaussian|has standard deviation)")


@functools.cache
def sign_model() -> gf.Trained:
    return gf.train(patients()[1], "sign", sigma=SIGMA)


# -- the very clever cheat -------------------------------------------------------------------------------------------


def forged(
    base: gf.Outcome,
    *,
    trained: gf.Trained | None = None,
    graph: gf.Graph | None = None,
    released: Tensor | None = None,
    claim: Claim | None = None,
    **stated: Any,
) -> gf.Outcome:
    """An outcome in which all digests and all measured numbers fit what was put in, and nothing is signed."""
    graph = graph or base.graph
    trained = trained or base.trained
    trained = trained.measured_on(trained.objective(graph))
    if claim is not None and trained.releases_left is not None:
        counted = counted_ratio(claim, vars(trained.recipe))
        trained = dataclasses.replace(trained, releases=(*trained.releases[:-1], counted))
    trained = dataclasses.replace(trained, graph_salt=base.trained.graph_salt)
    released = base.released_theta if released is None else on_the_grid(released, claim or base.certificate.claim)
    old = base.certificate
    certificate = dataclasses.replace(
        old,
        **{
            "signature": None,
            **subject(trained, strongly_convex=old.objective["strongly_convex"]),
            "algorithms": algorithms(trained, {}),
            "claim": claim or old.claim,
            "training_nodes": graph.train_rows.numel(),
            "releases_left": trained.releases_left,
            "digests": {
                "request": base.annex.request,
                "annex": base.annex.digest,
                "state": base.annex.state(trained.state_summary()),
                "graph": trained.graph_commitment(graph),
                "weights": base.annex.weights(trained.theta),
                "released": weights_digest(released),
            },
            **stated,
        },
    )
    return dataclasses.replace(base, trained=trained, graph=graph, released_theta=released, certificate=certificate)


def on_the_grid(released: Tensor, claim: Claim) -> Tensor:
    """Rounded as an honest release is."""
    step = grid(claim.number("sigma") or 0.0) if claim.number("sigma") else 0.0
    return (released / step).round() * step if step else released


def restated(base: gf.Outcome, **numbers: Any) -> Claim:
    """The claim with other numbers in it."""
    return dataclasses.replace(base.certificate.claim, **numbers)


def promise(*, epsilon: float = 1.0, delta: float = 1e-5, sigma: float = SIGMA, mu: float = 1e-4) -> ResidualBall:
    """A claim in itself without a fault."""
    allowed = tolerance(sigma=sigma, epsilon=epsilon, delta=delta, releases=64)
    return ResidualBall(epsilon, delta, sigma, mu=mu, releases=64, tolerance=allowed)


def with_sigma(trained: gf.Trained, sigma: float) -> gf.Trained:
    return dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, sigma=sigma))


def assert_caught(cheat: gf.Outcome, folder: Path, message: str) -> None:
    """With the objects at hand, and in a run directory written by the library itself."""
    with pytest.raises(gf.Mismatch, match=message) as caught:
        verify(cheat)
    assert "\n" not in str(caught.value)
    gf.save_outcome(folder / "forged", cheat)
    Chain(read_history(folder / "forged").entries)  # unbroken
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(folder / "forged")


def assert_only_a_signature_catches(cheat: gf.Outcome, folder: Path) -> None:
    """It passes unsigned; who asks for the signature by name is not deceived."""
    assert verify(cheat).checks
    gf.save_outcome(folder / "forged", cheat)
    assert "signature" in gf.verify_run(folder / "forged").unchecked
    for key, message in ((None, "is not signed"), (Ed25519PrivateKey.generate(), "signed with another key")):
        gf.save_outcome(folder / "forged", cheat, key=key, force=True)
        assert gf.verify_run(folder / "forged").checks
        with pytest.raises(gf.Mismatch, match=message):
            gf.verify_run(folder / "forged", key=KEY.public_key())


def test_the_forger_can_tell_the_truth(tmp_path: Path) -> None:
    """Else a forgery would be caught for being badly made."""
    for base in (outcome(), idea_outcome(), exact_outcome(), gcn()):
        assert forged(base).certificate == base.certificate
        assert verify(forged(base)) == verify(base)
    gf.save_outcome(tmp_path / "run", forged(outcome()))
    assert gf.verify_run(tmp_path / "run").checks


def put_back(kind: str) -> gf.Outcome:
    """Everything done right, but for one thing that stayed in the graph; the papers say that it went."""
    trained, graph = patients()
    full = whole_request(graph)
    left = gf.Request(
        () if kind == "node" else full.nodes,
        () if kind == "edge" else full.edges,
        {} if kind == "attribute" else full.attributes,
    )
    done = gf.unlearn(trained, graph, left)
    papers = Annex.of(graph, full)
    return forged(dataclasses.replace(done, annex=papers))


@pytest.mark.parametrize("kind", ["node", "edge", "attribute"])
def test_what_was_left_in_the_graph_is_caught(kind: str, tmp_path: Path) -> None:
    article = {"node": "a node", "edge": "an edge", "attribute": "an attribute value"}[kind]
    assert_caught(put_back(kind), tmp_path, f"^{article} that was to be forgotten is in the retained graph$")


def test_another_graph_is_caught(tmp_path: Path) -> None:
    """Also one in which nothing that was to go is left."""
    graph = outcome().graph.without(gf.Request(nodes=["patient-0100"]))
    message = "^the optimum may be .* from the centre of the release, over the tolerance"
    assert_caught(forged(outcome(), graph=graph), tmp_path, message)
    trained, whole = patients()
    own = gf.unlearn(trained, whole, gf.Request(nodes=["patient-0100"]))
    with pytest.raises(gf.Mismatch, match="the graph is not the one that the model stands on"):
        gf.verify(outcome().certificate, outcome().trained, own.graph)
    moved = dataclasses.replace(outcome().trained, graph_digest=own.graph.digest)
    with pytest.raises(gf.Mismatch, match="the graph does not match the certificate"):
        gf.verify(outcome().certificate, moved, own.graph)


def test_a_certificate_of_another_run_is_caught(tmp_path: Path) -> None:
    trained, graph = patients()
    other = gf.unlearn(trained, graph, gf.Request(nodes=["patient-0100"]))
    with pytest.raises(gf.Mismatch, match="^the graph does not match the certificate$"):
        gf.verify(other.certificate, outcome().trained, outcome().graph)
    mixed = dataclasses.replace(outcome(), certificate=other.certificate)
    with pytest.raises(gf.Mismatch, match="^the graph does not match the certificate$"):
        verify(mixed)
    gf.save_outcome(tmp_path / "run", mixed)
    with pytest.raises(
        gf.Mismatch, match="^entry 1 of the ledger is not about the requests that its certificate is about$"
    ):
        gf.verify_run(tmp_path / "run")
    # The same graph, another noise and another salt: an outcome of the same request.
    again = gf.unlearn(trained, graph, whole_request(graph))
    for part, message in (
        ({"released_theta": again.released_theta}, "^the released weights do not match the certificate"),
        ({"annex": again.annex}, "^the weights do not match the certificate"),
        ({"certificate": again.certificate}, "^the graph does not match the certificate$"),
    ):
        with pytest.raises(gf.Mismatch, match=message):
            verify(dataclasses.replace(outcome(), **part))


def test_an_annex_of_another_request_is_caught(tmp_path: Path) -> None:
    """The papers tell of somebody who was not removed at all."""
    papers = Annex.of(patients()[1], gf.Request(nodes=["patient-0001"]))
    cheat = forged(dataclasses.replace(outcome(), annex=papers))
    assert_caught(cheat, tmp_path, "^a node that was to be forgotten is in the retained graph$")
    with pytest.raises(gf.Mismatch, match="^the annex does not match the certificate$"):
        verify(outcome(), annexes=[dataclasses.replace(outcome().annex, request=papers.request)])


@pytest.mark.slow
def test_a_ledger_begun_anew_is_caught_by_the_signature_alone(kept: Path, tmp_path: Path) -> None:
    """The second of two requests as if it were the first: unsigned, the shorter story is as good as the longer one."""
    trained, graph = gf.load_run(kept)
    record = read_history(kept)
    second = dataclasses.replace(
        outcome(),
        trained=trained,
        graph=graph,
        released_theta=load_file(kept / RELEASED)["theta"],
        annex=record.annexes[-1],
        certificate=gf.Certificate.read(kept / CERTIFICATE),
    )
    assert_only_a_signature_catches(forged(second), tmp_path)
    with pytest.raises(gf.Mismatch, match="^the ledger is broken at entry 1"):
        verify(second, entries=record.entries[1:], key=KEY.public_key())


def test_an_unlearning_that_did_nothing_is_caught(tmp_path: Path) -> None:
    """The old weights with fresh noise."""
    old = patients()[0]
    message = "^the optimum may be .* from the centre of the release, over the tolerance"
    for name, history in (("as if moved", outcome().trained.history), ("as if trained", ())):
        cheating = dataclasses.replace(outcome().trained.with_weights(old.theta), history=history)
        released = old.theta + noise(size=old.theta.numel(), sigma=SIGMA)
        assert_caught(forged(outcome(), trained=cheating, released=released), tmp_path / name, message)


def test_old_weights_called_exact_are_caught(tmp_path: Path) -> None:
    """As if the request had touched nothing."""
    old = patients()[0]
    cheat = forged(outcome(), trained=old, released=old.theta + noise(size=62, sigma=SIGMA), claim=Exact(sigma=SIGMA))
    assert not cheat.trained.converged
    message = "^a strongly convex model with noise is published as certified, never as exact$"
    assert_caught(cheat, tmp_path / "noise", message)
    old = without_noise()
    cheat = forged(exact_outcome(), trained=old, released=old.theta)
    assert cheat.certificate.level == "exact"
    assert_caught(cheat, tmp_path / "exact", "^the weights are up to .* from the optimum, training ends at")


def test_noise_left_out_is_caught(tmp_path: Path) -> None:
    """Around which point it should lie does not matter: the weights themselves are far too near as well."""
    theta = outcome().trained.theta
    for name, point in (("centre", outcome().centre), ("weights", theta)):  # rounded to the grid, as a release is
        message = "^the noise in the released weights has standard deviation (0.000[0-9]*|[0-9]e-05), not 0.03$"
        assert_caught(forged(outcome(), released=point.clone()), tmp_path / name, message)
    bare = with_sigma(outcome().trained, 0.0)
    with pytest.raises(gf.InputError, match="the claim's sigma is 0.0, a number above 0 is needed"):
        restated(outcome(), sigma=0.0)
    message = "^sigma is 0.03, the model's was fixed at 0.0 when it was trained$"
    assert_caught(forged(outcome(), trained=bare, released=theta.clone()), tmp_path / "recipe", message)
    for claim in (Exact(), Exact(sigma=SIGMA)):
        with pytest.raises(gf.Mismatch, match="^the level is too high: the weights moved away"):
            verify(forged(outcome(), trained=bare, released=theta.clone(), claim=claim))


def test_noise_around_another_point_than_the_certified_one_is_caught(tmp_path: Path) -> None:
    """Of the right size and shape, but moved by more than a Gaussian of that size would be."""
    centre = outcome().centre
    elsewhere = centre + 0.02 * torch.ones_like(centre) + noise(size=centre.numel(), sigma=0.03, seed=1)
    assert_caught(forged(outcome(), released=elsewhere), tmp_path, "^the noise in the released weights")


def test_what_verify_tells_does_not_depend_on_the_noise() -> None:
    """How large it came out, in a few digits, would let whoever has the release test guesses of the private weights."""
    trained, graph = patients()
    for method in ("newton", "retrain"):
        message = set()
        for _ in range(5):
            result = gf.unlearn(trained, graph, whole_request(graph), method=method)
            checks = gf.verify(result.certificate, result.trained, result.graph, released=result.released_theta).checks
            message.add(tuple((check.name, check.result) for check in checks))
        assert len(message) == 1, method
        assert any(name == "noise" for name, _ in message.pop())


def test_where_the_optimum_can_be_is_not_said_of_a_gcn() -> None:
    base = gcn()
    claim = Empirical("nothing", sigma=base.certificate.sigma or 0.0, around_centre=True)
    with pytest.raises(gf.Mismatch, match="^the claim is about noise around a ball.s centre"):
        verify(forged(base, claim=claim))


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_noise_of_another_size_is_caught(factor: float, tmp_path: Path) -> None:
    theta = outcome().trained.theta
    cheat = forged(outcome(), released=theta + factor * noise(size=theta.numel(), sigma=0.03, seed=1))
    assert_caught(cheat, tmp_path, "^the noise in the released weights has standard deviation")


def test_a_lowered_sigma_is_caught(tmp_path: Path) -> None:
    """In the certificate, in the certificate and run.json, and with all that follows from it."""
    theta, sigma = outcome().trained.theta, 0.2 * SIGMA
    released = theta + noise(size=theta.numel(), sigma=sigma)
    lower = with_sigma(outcome().trained, sigma)
    claim = restated(outcome(), sigma=sigma)
    fixed = "^sigma is 0.006.*, the model's was fixed at 0.03 when it was trained$"
    assert_caught(forged(outcome(), released=released, claim=claim), tmp_path / "one", fixed)
    message = "^the tolerance is 0.00100.*, epsilon and delta allow 0.00020"
    assert_caught(forged(outcome(), trained=lower, released=released, claim=claim), tmp_path / "both", message)
    claim = promise(sigma=sigma)
    assert_caught(forged(outcome(), released=released, claim=claim), tmp_path / "fixed", fixed)
    message = "^the optimum may be .* from the centre of the release, over the tolerance 0.0002$"
    assert_caught(forged(outcome(), trained=lower, released=released, claim=claim), tmp_path / "all", message)


NOT_CHOSEN = "which is neither the model's nor listed as chosen for this request$"
TOLERANCE = "^the tolerance is .*, epsilon and delta allow"


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"epsilon": 0.1}, f"^epsilon is 0.1, {NOT_CHOSEN}"),
        ({"epsilon": 2.0}, f"^epsilon is 2, {NOT_CHOSEN}"),
        ({"delta": 1e-15}, f"^delta is 1e-15, {NOT_CHOSEN}"),
        ({"delta": 2e-5}, f"^delta is 2e-05, {NOT_CHOSEN}"),
        ({"sigma": 0.031}, "^sigma is 0.031, the model's was fixed at 0.03 when"),
        ({"mu": 2e-4}, "^mu is 0.0002, the model's was fixed at 0.0001 when"),
        ({"releases": 63}, "^releases is 63, the model's was fixed at 64 when"),
        ({"releases": 1}, "^releases is 1, the model's was fixed at 64 when"),
        ({"tolerance": 1.0}, TOLERANCE),
        ({"tolerance": 0.001002}, TOLERANCE),
        ({"tolerance": 0.001}, TOLERANCE),
        ({"conditions": ("all",)}, "^the claim lists conditions that it cannot have$"),
    ],
)
def test_a_number_of_the_claim_that_was_edited_is_caught(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(gf.Mismatch, match=message):
        verify(forged(outcome(), claim=restated(outcome(), **numbers)))


@pytest.mark.parametrize("numbers", [{"epsilon": 0.1}, {"epsilon": 2.0}, {"delta": 1e-15}, {"delta": 2e-5}])
def test_another_epsilon_or_delta_has_another_tolerance(numbers: dict[str, Any]) -> None:
    """Also where it is listed as chosen."""
    with pytest.raises(gf.Mismatch, match=TOLERANCE):
        verify(forged(outcome(), claim=restated(outcome(), **numbers), chosen=numbers))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training_nodes": 1}, "the number of training nodes is not that of the retained graph"),
        ({"model": {"name": "sign", "options": {}, "parameters": 62}}, "states the model"),
        ({"objective": {"loss": "cross_entropy", "mu": 1.0, "strongly_convex": True}}, "states the objective"),
        *(
            ({"settings": {name: value}}, "^the certificate states the settings")
            for name, value in (("epsilon", 0.5), ("delta", 1e-9), ("sigma", 0.1), ("releases", 65), ("mu", 1.0))
        ),
        *(({"settings": {name: 0.9}}, "^the certificate states the settings") for name in ("floor", "more")),
        ({"algorithms": {"graph": "MD5"}}, "digests are of algorithms that this version does not know"),
        ({"algorithms": {}}, "digests are of algorithms that this version does not know"),
        ({"releases_left": 64}, "^the certificate has 64 releases left, the model 63$"),
        ({"releases_left": 62}, "^the certificate has 62 releases left, the model 63$"),
        ({"releases_left": None}, "^the certificate has None releases left, the model 63$"),
    ],
)
def test_what_the_claim_is_about_cannot_be_edited(changes: dict[str, Any], message: str) -> None:
    (name, value), old = next(iter(changes.items())), outcome().certificate
    if name == "settings":
        changes = {name: dict(old.settings) | value}
    with pytest.raises(gf.Mismatch, match=message):
        verify(forged(outcome(), **changes))


def test_a_release_that_the_model_does_not_count_is_caught(tmp_path: Path) -> None:
    """The certificate, run.json and all digests say that there was none."""
    for releases in ((), (0.0,), (outcome().trained.releases[0] / 2,)):
        forgetful = dataclasses.replace(outcome().trained, releases=releases)
        cheat = forged(outcome(), trained=forgetful)
        assert cheat.certificate.releases_left == 64 - (len(releases) if sum(releases) else 0)
        assert_caught(cheat, tmp_path / f"{sum(releases)}-{len(releases)}", "^the model does not count this release$")


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-100)])
def test_a_better_promise_with_all_that_follows_from_it_is_caught(epsilon: float, delta: float, tmp_path: Path) -> None:
    """A claim in itself without a fault: it is the measured distance that does not fit."""
    claim = promise(epsilon=epsilon, delta=delta)
    message = f"^the optimum may be .* from the centre of the release, over the tolerance {claim.tolerance:.3g}$"
    cheat = forged(outcome(), claim=claim, chosen={"epsilon": epsilon, "delta": delta})
    assert_caught(cheat, tmp_path / "chosen", message)
    recipe = dataclasses.replace(outcome().trained.recipe, epsilon=epsilon, delta=delta)
    own = dataclasses.replace(outcome().trained, recipe=recipe)
    assert_caught(forged(outcome(), claim=claim, trained=own), tmp_path / "fixed", message)


@pytest.mark.parametrize("epsilon", [1.5, 0.9])
def test_what_is_true_can_be_claimed_by_anybody_but_not_signed(epsilon: float, tmp_path: Path) -> None:
    """A promise that holds as well: another epsilon with its own tolerance, over the measured distance."""
    cheat = forged(outcome(), claim=promise(epsilon=epsilon), chosen={"epsilon": epsilon})
    assert_only_a_signature_catches(cheat, tmp_path)
    assert verify(cheat).unchecked[-1] == "why this was chosen for this request, which may tell of it: epsilon"
    with pytest.raises(gf.Mismatch, match=f"^epsilon is {epsilon}, {NOT_CHOSEN}"):
        verify(forged(outcome(), claim=promise(epsilon=epsilon)))


def test_a_chosen_epsilon_cannot_be_passed_off_as_the_models() -> None:
    """An honest outcome with another epsilon, and the list of what was chosen emptied."""
    trained, graph = patients()
    settings: tuple[dict[str, Any], ...] = ({"epsilon": 2.0}, {"delta": 1e-6})
    for chosen in settings:
        result = gf.unlearn(trained, graph, whole_request(graph), **chosen)
        assert result.certificate.chosen == chosen
        assert verify(result).checks
        for emptied in ({}, {"level": "certified"}):
            with pytest.raises(gf.Mismatch, match=f"^{next(iter(chosen))} is .*, {NOT_CHOSEN}"):
                verify(forged(result, chosen=emptied))


@pytest.mark.slow
@pytest.mark.parametrize("words", [{}, {"statement": "everything is forgotten"}, {"definition": 5, "more": None}])
def test_what_is_in_words_is_for_people_and_under_the_signature(words: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is computed from it, so that no certificate depends on how a sentence is chosen."""
    assert_only_a_signature_catches(forged(outcome(), words=words), tmp_path)


def test_one_weight_changed_is_still_near_enough_but_not_signed(tmp_path: Path) -> None:
    """With the digest rewritten it is true of these weights too; a far one is not."""
    theta = outcome().trained.theta.clone()
    theta[0] += 1e-9
    near = outcome().trained.with_weights(theta)
    assert_only_a_signature_catches(forged(outcome(), trained=near), tmp_path)
    theta[0] += 1e-1
    far = outcome().trained.with_weights(theta)
    message = "from the centre of the release, over the tolerance"
    assert_caught(forged(outcome(), trained=far), tmp_path / "far", message)


# -- levels ----------------------------------------------------------------------------------------------------------


def test_conditional_called_certified_is_caught(tmp_path: Path) -> None:
    base = idea_outcome()
    released = base.trained.theta + noise(size=62, sigma=SIGMA)
    message = "^sigma is 0.03, the model's was fixed at 0.0 when it was trained$"
    assert_caught(forged(base, claim=promise(), released=released), tmp_path / "claim", message)
    cheat = forged(base, trained=with_sigma(base.trained, SIGMA), claim=promise(), released=released)
    assert_caught(cheat, tmp_path / "recipe", "^the optimum may be .* from the centre of the release, over the toler")


def test_certified_called_exact_is_caught(tmp_path: Path) -> None:
    message = "^the level is too high: the weights moved away from those of training$"
    assert_caught(forged(outcome(), claim=Exact(sigma=SIGMA)), tmp_path / "moved", message)
    forgetful = dataclasses.replace(outcome().trained, history=())
    message = "^a strongly convex model with noise is published as certified, never as exact$"
    assert_caught(forged(outcome(), trained=forgetful, claim=Exact(sigma=SIGMA)), tmp_path / "history", message)
    moved = with_sigma(forgetful, 0.0)
    there = newton_cg(moved.objective(outcome().graph), moved.theta, gradient_tolerance=1e-9).theta
    bare = moved.with_weights(there)
    cheat = forged(outcome(), trained=bare, claim=Exact(), released=bare.theta)
    assert REPLAY in verify(cheat).unchecked  # they are as near to the optimum as training ends
    with pytest.raises(gf.Mismatch, match="^training again on the retained graph gives other weights$"):
        verify(cheat, replay=True)
    farther = dataclasses.replace(moved, recipe=dataclasses.replace(moved.recipe, tolerance=1e-5))
    cheat = forged(outcome(), trained=farther, claim=Exact(), released=moved.theta)
    assert_caught(cheat, tmp_path / "noise", "^the weights are up to .* from the optimum, training ends at")


def test_an_exact_claim_has_no_numbers_of_its_own() -> None:
    claim = exact_outcome().certificate.claim
    assert claim.to_dict() == {"kind": "exact/1", "sigma": 0.0}
    assert [claim.number(name) for name in ("epsilon", "delta", "sigma", "tolerance")] == [0.0, 0.0, 0.0, None]
    with pytest.raises(gf.Mismatch, match=f"^sigma is 0.1, {NOT_CHOSEN}"):
        verify(forged(exact_outcome(), claim=Exact(sigma=0.1)))


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_noise_that_was_chosen_for_one_exact_release_verifies(model: str) -> None:
    """On top of weights that need none; the list of what was chosen cannot be emptied."""
    graph = patients()[1]
    trained = without_noise() if model == "sgc" else train_without_noise(graph, model, epochs=3, polish_steps=0)
    result = gf.unlearn(trained, graph, whole_request(graph), sigma=0.1)
    assert (result.level, result.certificate.sigma, result.certificate.chosen) == ("exact", 0.1, {"sigma": 0.1})
    assert names(verify(result)) == ALL
    with pytest.raises(gf.Mismatch, match=f"^sigma is 0.1, {NOT_CHOSEN}"):
        verify(forged(result, chosen={}))
    with pytest.raises(gf.Mismatch, match="^the noise in the released weights has standard deviation"):
        verify(forged(result, chosen={"sigma": 0.3}, claim=Exact(sigma=0.3)))


def test_empirical_called_certified_is_caught(tmp_path: Path) -> None:
    """A model that carries data."""
    trained, graph = patients()
    carries = dataclasses.replace(trained, certification_blockers=("layer 'norm' keeps statistics of the data",))
    result = gf.unlearn(carries, graph, whole_request(graph), level="empirical")
    assert result.level == "empirical"
    assert verify(result).checks
    for claim in (promise(), Exact(sigma=SIGMA), restated(idea_outcome(), sigma=SIGMA)):
        cheat = forged(result, claim=claim, released=result.trained.theta + noise(size=62, sigma=SIGMA))
        assert_caught(cheat, tmp_path / claim.level, "^the level is too high for this model: layer 'norm'")


@functools.cache
def gcn() -> gf.Outcome:
    trained, graph = network()
    return idea(trained, graph, gf.Request(nodes=[4]), constants=HOLDS, audit=False)


def test_a_gcn_called_certified_is_caught(tmp_path: Path) -> None:
    """Also if run.json and the certificate say that it is strongly convex."""
    base = gcn()
    theta = base.trained.theta
    bold = dataclasses.replace(with_sigma(base.trained, 1.0), strongly_convex=True)
    claim = promise(sigma=1.0, mu=base.trained.recipe.mu)
    given: dict[str, Any] = {"released": theta + noise(size=theta.numel(), sigma=1.0), "claim": claim}
    message = "^the level is too high: the objective is not strongly convex by construction$"
    objective = dict(base.certificate.objective) | {"strongly_convex": True, "rounding": "estimated"}
    declared = given | {"claim": dataclasses.replace(claim, conditions=(DECLARED_CONVEX,))}
    for cheat, seen in (
        (forged(base, trained=bold, **given), message),
        (forged(base, trained=bold, objective=objective, **given), "^the certificate states the objective"),
        (forged(base, trained=bold, **declared), "^the objective is not strongly convex, so"),
    ):
        with pytest.raises(gf.Mismatch, match=seen):
            gf.verify(cheat.certificate, cheat.trained, cheat.graph)
        place = gf.save_outcome(tmp_path / "cheat", cheat, force=True)
        with pytest.raises(gf.Mismatch, match=r"^run\.json: the field 'strongly_convex' is not right"):
            gf.verify_run(place)
        shutil.rmtree(place)


IMPLIED = "^epsilon is 1, the bound and the noise imply"


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"epsilon": 0.5}, f"^epsilon is 0.5, {NOT_CHOSEN}"),
        ({"epsilon": 2.0}, f"^epsilon is 2, {NOT_CHOSEN}"),
        ({"delta": 1e-9}, f"^delta is 1e-09, {NOT_CHOSEN}"),
        ({"sigma": 100.0}, IMPLIED),
        ({"sigma": 0.0}, "^epsilon is 1, the bound and the noise imply inf$"),
        ({"sigma": 1e7}, "^the noise in the released weights has standard deviation"),
        ({"constants": gf.Constants(strong_convexity=1e-5, lipschitz=100.0, loss_bound=100.0)}, IMPLIED),
        ({"constants": gf.Constants(strong_convexity=1e-4, lipschitz=100.0, loss_bound=1e3)}, IMPLIED),
        ({"conditions": ()}, "^the claim does not list a condition that it needs: bounded losses$"),
        ({"conditions": ("bounded losses", "Lipschitz losses", "strong convexity")}, "needs: trained to a minimum$"),
    ],
)
@pytest.mark.parametrize("base", [idea_outcome, gcn], ids=["sgc", "gcn"])
def test_a_conditional_claim_that_was_edited_is_caught(
    numbers: dict[str, Any], message: str, base: Callable[[], gf.Outcome]
) -> None:
    with pytest.raises(gf.Mismatch, match=message):
        verify(forged(base(), claim=restated(base(), **numbers)))


@pytest.mark.parametrize("numbers", [{"epsilon": 0.5}, {"delta": 1e-9}])
def test_an_epsilon_that_was_chosen_must_follow_from_the_bound_too(numbers: dict[str, Any]) -> None:
    with pytest.raises(gf.Mismatch, match="the bound and the noise imply"):
        verify(forged(idea_outcome(), claim=restated(idea_outcome(), **numbers), chosen=numbers))


def test_a_conditional_claim_needs_a_history() -> None:
    with pytest.raises(gf.Mismatch, match="^the paper's bound needs the model's history, which is missing$"):
        verify(forged(idea_outcome(), trained=dataclasses.replace(idea_outcome().trained, history=())))


def test_a_condition_that_was_refuted_voids_a_conditional_claim() -> None:
    refuted = idea_outcome().trained.amend_last_entry(refuted=("strong convexity",))
    with pytest.raises(gf.Mismatch, match="^the level is too high: a condition does not hold, strong convexity$"):
        verify(forged(idea_outcome(), trained=refuted))


# -- files -----------------------------------------------------------------------------------------------------------

Spoil = Callable[[Path], None]


def json_edit(file: str, **changes: Any) -> Spoil:
    """A dictionary changes the fields of a field."""

    def spoil(run: Path) -> None:
        content = json.loads((run / file).read_text())
        for name, value in changes.items():
            content[name] = content[name] | value if isinstance(value, dict) else value
            if isinstance(value, list) and value and isinstance(value[0], dict):  # the whole field, not a part of it
                content[name] = value[0]
        (run / file).write_text(json.dumps(content))

    return spoil


def tensor_edit(file: str, change: Callable[[Tensor, Path], Tensor]) -> Spoil:
    def spoil(run: Path) -> None:
        tensors = load_file(run / file)
        save_file(tensors | {"theta": change(tensors["theta"], run).contiguous()}, run / file)

    return spoil


def private(run: Path) -> Tensor:
    return load_file(run / "weights.safetensors")["theta"]


def nudged(theta: Tensor, run: Path) -> Tensor:
    theta[3] += 1e-6
    return theta


def graph_with(kind: str) -> Spoil:
    """The files of a graph in which something stayed, or of another one."""

    def spoil(run: Path) -> None:
        graph = patients()[1].without(gf.Request(nodes=["patient-0300"]))
        full = whole_request(graph)
        left = {
            "node": gf.Request((), full.edges, full.attributes),
            "edge": gf.Request(full.nodes, (), full.attributes),
            "attribute": gf.Request(full.nodes, full.edges),
            "another": gf.Request(full.nodes, full.edges, dict(full.attributes) | {"patient-0007": "all"}),
        }[kind]
        other = graph.without(left)
        trained = gf.load_run(run)[0]
        moved = trained.measured_on(trained.objective(other))
        gf.save_run(run.with_name("other"), moved, other)
        for file in ("graph.safetensors", "graph.json"):
            shutil.copy(run.with_name("other") / file, run / file)
        given = json.loads((run.with_name("other") / "run.json").read_text())
        json_edit("run.json", **{name: given[name] for name in ("graph_digest", "objective")})(run)
        shutil.rmtree(run.with_name("other"))

    return spoil


def of_another_run(file: str) -> Spoil:
    def spoil(run: Path) -> None:
        other = gf.save_outcome(run.with_name("other"), outcome(), key=KEY)
        shutil.copy(other / file, run / file)
        shutil.rmtree(other)

    return spoil


def ledger_edit(*statements: str) -> Spoil:
    def spoil(run: Path) -> None:
        with closing(sqlite3.connect(run / LEDGER, isolation_level=None)) as connection:
            triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement)
            for _, sql in triggers:
                connection.execute(sql)

    return spoil


def without_triggers(run: Path) -> None:
    with closing(sqlite3.connect(run / LEDGER, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER no_update")


def annexes_edit(change: Callable[[list[Any]], list[Any]]) -> Spoil:
    def spoil(run: Path) -> None:
        content = json.loads((run / ANNEX).read_text())
        (run / ANNEX).write_text(json.dumps(content | {"annexes": change(content["annexes"])}))

    return spoil


def another_annex(annexes: list[Any]) -> list[Any]:
    graph = patients()[1]
    return [annexes[0], Annex.of(graph, gf.Request(nodes=["patient-0300"])).to_dict()]


def unsigned(run: Path) -> None:
    json_edit(CERTIFICATE, signature=None)(run)


def old_weights(run: Path) -> None:
    """The weights from before both requests, and the objective that they have."""
    theta = patients()[0].theta
    trained, graph = gf.load_run(run)
    tensor_edit("weights.safetensors", lambda *_: theta)(run)
    json_edit("run.json", objective=trained.objective(graph).value(theta))(run)


def both(*spoils: Spoil) -> Spoil:
    def spoil(run: Path) -> None:
        for each in spoils:
            each(run)

    return spoil


def claim_edit(**changes: Any) -> Spoil:
    return json_edit(CERTIFICATE, claim=changes)


def unsigned_edit(**changes: Any) -> Spoil:
    return both(unsigned, json_edit(CERTIFICATE, **changes))


SPOILT: dict[str, tuple[Spoil, str]] = {
    "one weight changed": (tensor_edit("weights.safetensors", nudged), "^the weights do not match the certificate"),
    "another graph": (graph_with("another"), "the graph does not match the certificate"),
    "a node put back": (graph_with("node"), "the graph does not match the certificate"),
    "an edge put back": (graph_with("edge"), "the graph does not match the certificate"),
    "an attribute put back": (graph_with("attribute"), "the graph does not match the certificate"),
    "noise left out": (tensor_edit(RELEASED, lambda _, run: private(run)), "^the released weights do not match"),
    "half the noise": (
        tensor_edit(RELEASED, lambda theta, run: (theta + private(run)) / 2),
        "^the released weights do not match the certificate",
    ),
    "other noise": (
        tensor_edit(RELEASED, lambda theta, run: private(run) + 0.03 * (theta - private(run)).sign()),
        "^the released weights do not match the certificate",
    ),
    "sigma lowered": (claim_edit(sigma=0.01), "^the signature does not fit"),
    "sigma lowered, unsigned": (
        both(unsigned, claim_edit(sigma=0.01)),
        "^sigma is 0.01, the model's was fixed at 0.03",
    ),
    "sigma lowered twice": (
        both(unsigned, claim_edit(sigma=0.029), json_edit("run.json", recipe={"sigma": 0.029})),
        "^the certificate states the settings",
    ),
    "sigma lowered three times": (
        both(
            *(unsigned, claim_edit(sigma=0.029)),
            json_edit(CERTIFICATE, settings={"sigma": 0.029}),
            json_edit("run.json", recipe={"sigma": 0.029}),
        ),
        "^recipe, reach or history of the model do not match the certificate$",
    ),
    "sigma of the model raised": (
        json_edit("run.json", recipe={"sigma": 0.3}),
        "^the certificate states the settings",
    ),
    "epsilon of the model": (json_edit("run.json", recipe={"epsilon": 0.1}), "^the certificate states the settings"),
    "releases of the model": (
        json_edit("run.json", recipe={"releases": 99}),
        "^the certificate states the settings",
    ),
    "releases not counted": (
        json_edit("run.json", releases=[]),
        "^the certificate has 62 releases left, the model 64$",
    ),
    "a release of nothing counted last": (
        lambda run: json_edit("run.json", releases=[*gf.load_run(run)[0].releases, 0.0])(run),
        "^recipe, reach or history of the model do not match the certificate$",
    ),
    "releases left": (json_edit(CERTIFICATE, releases_left=64), "^the signature does not fit"),
    "releases left, unsigned": (
        unsigned_edit(releases_left=64),
        "^the certificate has 64 releases left, the model 62$",
    ),
    "epsilon": (claim_edit(epsilon=0.1), "^the signature does not fit"),
    "epsilon, unsigned": (both(unsigned, claim_edit(epsilon=0.1)), f"^epsilon is 0.1, {NOT_CHOSEN}"),
    "delta": (claim_edit(delta=1e-15), "^the signature does not fit"),
    "delta, unsigned": (both(unsigned, claim_edit(delta=1e-15)), f"^delta is 1e-15, {NOT_CHOSEN}"),
    "level": (json_edit(CERTIFICATE, level="exact"), "^.* cannot be read as a certificate: the certificate's level is"),
    "level and claim": (
        json_edit(CERTIFICATE, level="exact", claim=[{"kind": "exact/1", "sigma": SIGMA}]),
        "^the signature does not fit",
    ),
    "level and claim, unsigned": (
        unsigned_edit(level="exact", claim=[{"kind": "exact/1", "sigma": SIGMA}]),
        "^the level is too high: the weights moved away",
    ),
    "statement": (json_edit(CERTIFICATE, words={"statement": "forgotten"}), "^the signature does not fit"),
    "statement, unsigned": (
        unsigned_edit(words={"statement": "forgotten"}),
        "^the certificate is not the one of the ledger's last entry$",
    ),
    "the signature taken off": (unsigned, "^the certificate is not the one of the ledger's last entry$"),
    "nothing done": (old_weights, "^the weights do not match the certificate"),
    "a certificate of another run": (of_another_run(CERTIFICATE), "holds something else beside the weights than"),
    "a ledger of another run": (of_another_run(LEDGER), "has 1 entries in its ledger and 2 annexes"),
    "annexes of another run": (of_another_run(ANNEX), "has 2 entries in its ledger and 1 annexes"),
    "released weights of another run": (of_another_run(RELEASED), "holds something else beside the weights than"),
    "an annex of another request": (annexes_edit(another_annex), "^the certificate is not that of this run$"),
    "annexes in another order": (annexes_edit(lambda annexes: annexes[::-1]), "^the certificate is not that of this"),
    "an earlier annex of another request": (
        annexes_edit(lambda annexes: [another_annex(annexes)[1], annexes[1]]),
        "^the ledger and the annexes are about different requests$",
    ),
    "a first entry removed": (
        both(ledger_edit("DELETE FROM entries WHERE number = 1"), annexes_edit(lambda annexes: annexes[1:])),
        "^the ledger is broken at entry 1",
    ),
    "a last entry removed": (
        both(ledger_edit("DELETE FROM entries WHERE number = 2"), annexes_edit(lambda annexes: annexes[1:])),
        "^outcome.json is not what the ledger says was answered$",
    ),
    "all entries removed": (
        both(ledger_edit("DELETE FROM entries"), annexes_edit(lambda annexes: [])),
        "^the ledger of .* is missing$",
    ),
    "an entry without its annex": (ledger_edit("DELETE FROM entries WHERE number = 1"), "has 1 entries"),
    "an entry edited": (ledger_edit("UPDATE entries SET ratio = 0.0 WHERE number = 1"), "broken at entry 1"),
    "the last entry edited": (ledger_edit("UPDATE entries SET ratio = 0.0 WHERE number = 2"), "broken at entry 2"),
    "the answer in the ledger edited": (
        ledger_edit("UPDATE entries SET answer = '{}' WHERE number = 2"),
        "^the ledger is broken at entry 2",
    ),
    "the triggers of the ledger taken away": (without_triggers, "is not a ledger as it was written"),
    "the ledger taken away": (lambda run: (run / LEDGER).unlink(), "^the ledger of .* is missing$"),
}


def test_the_honest_run_verifies(kept: Path) -> None:
    result = gf.verify_run(kept, key=KEY.public_key())
    assert names(result) == ALL | OF_RUNS
    assert result.unchecked == ("fresh noise", *CANNOT_BE_CHECKED, ROLLBACK)
    rewrite_checksums(kept)  # changes nothing
    assert gf.verify_run(str(kept)).checks


@pytest.mark.slow
@pytest.mark.parametrize("what", SPOILT)
def test_a_naive_edit_of_the_files_is_caught(what: str, run: Path) -> None:
    SPOILT[what][0](run)
    with pytest.raises(gf.Mismatch) as caught:
        gf.verify_run(run)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("what", SPOILT)
def test_an_edit_with_fitting_checksums_is_caught(what: str, run: Path) -> None:
    spoil, message = SPOILT[what]
    spoil(run)
    rewrite_checksums(run)
    assert gf.load_run(run)[0].theta.numel() == 62  # no checksum gives it away
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(run)


@pytest.mark.parametrize("what", ["mu", "objective", "weights"])
def test_what_does_not_fit_the_objective_is_a_mismatch(what: str, run: Path) -> None:
    spoils: dict[str, Spoil] = {
        "mu": json_edit("run.json", recipe={"mu": 2e-4}),
        "objective": json_edit("run.json", objective=0.5),
        "weights": tensor_edit("weights.safetensors", lambda *_: patients()[0].theta),
    }
    spoils[what](run)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch):
        gf.verify_run(run)


@pytest.mark.parametrize(
    "what",
    [
        *("hashes of the last request", "hashes of an earlier request", "outcome.json"),
        *("account of the last request", "account of an earlier request", "released"),
    ],
)
def test_what_no_digest_in_the_certificate_covers_is_caught_too(what: str, run: Path) -> None:
    """Without its hashes an annex finds nothing, whatever is in the graph, and the signature still fits."""
    empty: dict[str, Any] = {"nodes": [], "edges": [], "attributes": {}}
    spoils: dict[str, Spoil] = {
        "hashes of the last request": annexes_edit(lambda annexes: [annexes[0], annexes[1] | empty]),
        "hashes of an earlier request": annexes_edit(lambda annexes: [annexes[0] | empty, annexes[1]]),
        "outcome.json": json_edit(OUTCOME, level="exact", notes=["retrained by a notary"]),
        "account of the last request": annexes_edit(lambda a: [a[0], a[1] | {"account": {"method": "retrain"}}]),
        "account of an earlier request": annexes_edit(lambda a: [a[0] | {"account": {}}, a[1]]),
        "released": annexes_edit(lambda a: [a[0] | {"released": False}, a[1]]),
    }
    spoils[what](run)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch):
        gf.verify_run(run, key=KEY.public_key())


def test_an_edited_mu_is_caught_whatever_else_fits(run: Path, tmp_path: Path) -> None:
    trained, graph = gf.load_run(run)
    for factor in (0.5, 2.0):
        recipe = dataclasses.replace(trained.recipe, mu=trained.recipe.mu * factor)
        other = dataclasses.replace(trained, recipe=recipe)
        value = other.objective(graph).value(other.theta)
        json_edit("run.json", recipe={"mu": recipe.mu}, objective=value)(run)
        with pytest.raises(gf.Mismatch, match="^the certificate states the objective"):
            gf.verify_run(run)
        claim = restated(outcome(), mu=recipe.mu)
        own = dataclasses.replace(outcome().trained, recipe=recipe)
        cheat = forged(outcome(), trained=own)
        assert cheat.certificate.objective["mu"] == cheat.certificate.settings["mu"] == recipe.mu
        message = f"^mu is 0.0001, the model's was fixed at {recipe.mu} when it was trained$"
        assert_caught(cheat, tmp_path / f"{factor}", message)
        message = "from the centre of the release, over the tolerance"
        assert_caught(forged(outcome(), trained=own, claim=claim), tmp_path / f"{factor}-claim", message)


@pytest.mark.parametrize("file", [CERTIFICATE, OUTCOME, ANNEX, RELEASED])
def test_a_file_that_is_missing_is_caught(file: str, run: Path) -> None:
    (run / file).unlink()
    with pytest.raises(gf.Mismatch, match=f"damaged.*{file}"):
        gf.verify_run(run)


@pytest.mark.parametrize(
    ("file", "message"), [(RELEASED, "holds no released weights"), (ANNEX, "annex.json is missing")]
)
def test_a_file_that_nobody_vouches_for_any_more_is_caught(file: str, message: str, run: Path) -> None:
    """The checksums of what is not there are taken out too."""
    content = json.loads((run / "run.json").read_text())
    del content["sha256"][file]
    (run / file).unlink()
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(run)


def test_a_run_that_forgot_nothing_has_nothing_to_verify(tmp_path: Path) -> None:
    gf.save_run(tmp_path / "run", *small())
    with pytest.raises(gf.InputError, match="holds no certificate: it has not answered any request$"):
        gf.verify_run(tmp_path / "run")


def test_a_number_that_json_does_not_have_is_no_crash(run: Path) -> None:
    json_edit(CERTIFICATE, signature=None, environment={"torch": float("nan")})(run)
    rewrite_checksums(run)
    with pytest.raises((gf.Mismatch, gf.InputError)) as caught:
        gf.verify_run(run)
    assert caught.type is not ValueError


# -- the ledger ------------------------------------------------------------------------------------------------------


def test_entries_that_do_not_belong_to_the_certificate_are_caught(tmp_path: Path) -> None:
    trained, graph = small()
    folder = gf.save_run(tmp_path / "run", trained, graph)
    first = gf.answer(folder, gf.Request(nodes=[4])).outcome
    one = read_history(folder)
    second = gf.answer(folder, gf.Request(nodes=[5])).outcome
    two = read_history(folder)
    assert first is not None
    assert second is not None
    for result in (verify(second, annexes=two.annexes, entries=two.entries), verify(first, entries=one.entries)):
        roots = "the roots from which absence is shown: 'verify' checks them with the run directory"
        assert result.unchecked == ("signature", "fresh noise", *CANNOT_BE_CHECKED, roots)
    assert roots not in gf.verify_run(folder).unchecked
    for actual, entries in ((second, one.entries), (first, two.entries)):
        with pytest.raises(gf.Mismatch, match="^the certificate is not the one of the ledger's last entry$"):
            verify(actual, entries=entries)
    with pytest.raises(gf.Mismatch, match="^the ledger and the annexes are about different requests$"):
        verify(second, annexes=two.annexes[1:], entries=two.entries)
    for change in ({"level": "exact"}, {"ratio": 0.5}, {"request_digest": "0" * 64}, {"certificate_digest": "0" * 64}):
        spoilt = (two.entries[0], dataclasses.replace(two.entries[1], **change))
        with pytest.raises(gf.Mismatch, match="^the ledger is broken at entry 2"):
            verify(second, annexes=two.annexes, entries=spoilt)


def test_the_ratio_of_a_release_is_that_of_its_claim() -> None:
    claim = outcome().certificate.claim
    assert isinstance(claim, ResidualBall)
    assert claim.ratio == claim.tolerance / SIGMA == outcome().trained.releases[-1]
    assert exact_outcome().certificate.claim.ratio == 0
    assert idea_outcome().certificate.claim.ratio is None
    assert Empirical("nothing").ratio is None
    assert restated(outcome(), conditions=(DECLARED_CONVEX,)).ratio is None


# -- keys and records of one's own -----------------------------------------------------------------------------------


def test_another_key_or_none_is_a_mismatch(run: Path, tmp_path: Path) -> None:
    assert gf.verify_run(run, key=KEY.public_key()).checks
    with pytest.raises(gf.Mismatch, match="^the certificate was signed with another key$"):
        gf.verify_run(run, key=Ed25519PrivateKey.generate().public_key())
    gf.save_outcome(tmp_path / "unsigned", outcome())
    with pytest.raises(gf.Mismatch, match="^the certificate is not signed$"):
        gf.verify_run(tmp_path / "unsigned", key=KEY.public_key())
    message = {check.name: check.result for check in gf.verify_run(run).checks}
    assert message["signature"].endswith(", an unknown signer")
    assert any(gap.startswith("who signed") for gap in gf.verify_run(run).unchecked)
    assert not any(gap.startswith("who signed") for gap in gf.verify_run(run, key=KEY.public_key()).unchecked)


def test_released_models_are_taken_as_well_as_their_weights() -> None:
    result = outcome()
    given = (result.certificate, result.trained, result.graph)
    names = [check.name for check in gf.verify(*given, released=result.released).checks]
    assert {"noise", "released weights"} <= set(names)
    with pytest.raises(gf.Mismatch, match="the released weights do not match the certificate"):
        gf.verify(*given, released=result.trained)


def own_records(*, drop: str | None = None) -> gf.Graph:
    """The retained graph rebuilt from tables: other rows, another order of edges, dense or sparse."""
    graph = patients()[1]
    left = graph.without(gf.Request(nodes=["patient-0300"])).without(whole_request(graph))
    if drop:
        left = left.without(gf.Request(nodes=[drop]))
    assert left.subject_ids is not None
    order = torch.randperm(left.num_nodes, generator=torch.Generator().manual_seed(0))
    return gf.Graph.create(
        x=left.x[order].to_sparse_csr(),
        edges=order.argsort()[left.edge_index].flip(1),
        y=left.y[order],
        train_mask=left.train_mask[order],
        test_mask=left.test_mask[order],
        subject_ids=[left.subject_ids[row] for row in order.tolist()],
        column_names=left.column_names,
        class_names=left.class_names,
        name="from our own tables",
    )


def test_records_of_ones_own_are_what_counts(kept: Path) -> None:
    graph = patients()[1]
    first = graph.without(gf.Request(nodes=["patient-0300"]))
    for own in (first.without(whole_request(graph)), own_records()):
        assert names(gf.verify_run(kept, graph=own, key=KEY.public_key())) == ALL | OF_RUNS
    full = whole_request(graph)
    wrong = [
        graph,
        first,
        graph.without(full),  # the first request forgotten
        first.without(gf.Request(nodes=full.nodes)),
        first.without(gf.Request(full.nodes, full.edges)),
        own_records(drop="patient-0001"),
        random_graph(1),
    ]
    for own in wrong:
        with pytest.raises(gf.Mismatch, match="^the graph is not the one that the model stands on$"):
            gf.verify_run(kept, graph=own)


# -- what earlier versions did not see -------------------------------------------------------------------------------


def graph_edit(change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> Spoil:
    """Tensors and names of the graph changed, with run.json made to fit: checksums and the graph's digest."""

    def spoil(run: Path) -> None:
        tensors, names = load_file(run / "graph.safetensors"), json.loads((run / "graph.json").read_text())
        change(tensors, names)
        save_file(tensors, run / "graph.safetensors")
        (run / "graph.json").write_text(json.dumps(names))
        rewrite_checksums(run)
        graph = _graph(tensors, read_fields(GraphFile, names, "graph.json"))
        json_edit("run.json", graph_digest=graph.digest)(run)

    return spoil


def shifted_numbers(tensors: dict[str, Tensor], names: dict[str, Any]) -> None:
    assert names["subject_ids"]
    tensors["numbers"] = tensors["numbers"] + 1


def other_digit_ids(tensors: dict[str, Tensor], names: dict[str, Any]) -> None:
    names["digit_ids"] = not names["digit_ids"]


@pytest.mark.parametrize("change", [shifted_numbers, other_digit_ids])
def test_how_nodes_are_numbered_is_under_the_certificate(
    change: Callable[[dict[str, Tensor], dict[str, Any]], None], run: Path
) -> None:
    """It decides what a later request by number deletes. No key is needed to see it."""
    fitting = json.loads((run / "run.json").read_text())["graph_digest"]
    graph_edit(change)(run)
    assert gf.load_run(run)[0].theta.numel() == 62  # no checksum gives it away
    with pytest.raises(gf.Mismatch, match="^the graph does not match the certificate$"):
        gf.verify_run(run)
    json_edit("run.json", graph_digest=fitting)(run)
    with pytest.raises(gf.Mismatch, match="its graph is not the one that the model was trained on$"):
        gf.verify_run(run)
    with pytest.raises(gf.InputError):
        gf.load_run(run)


def rehashed(entry: Entry, **changes: Any) -> Entry:
    """An entry with other content and the hash that it then has, under the old signature."""
    entry = dataclasses.replace(entry, **changes)
    outside = ("hash", "signer", "signature")
    content = {name: value for name, value in dataclasses.asdict(entry).items() if name not in outside}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return dataclasses.replace(entry, hash=hashlib.sha256(b"graphforget-ledger-2\n" + text.encode()).hexdigest())


def rewritten_entry(**changes: Any) -> Spoil:
    """The last entry rewritten, hash included, by somebody without the key."""

    def spoil(run: Path) -> None:
        entry = rehashed(read_history(run).entries[-1], **changes)
        row = {**changes, "hash": entry.hash}
        if changes.keys() <= {"signer", "signature"}:
            row = changes
        columns = ", ".join(f"{name} = ?" for name in row)
        with closing(sqlite3.connect(run / LEDGER, isolation_level=None)) as connection:
            triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(f"UPDATE entries SET {columns} WHERE number = 2", tuple(row.values()))
            for _, sql in triggers:
                connection.execute(sql)

    return spoil


def test_a_rehashed_entry_is_as_it_was(kept: Path) -> None:
    """Else a rewritten one would be caught for being badly made."""
    for entry in read_history(kept).entries:
        assert rehashed(entry) == entry


REWRITTEN: dict[str, Any] = {
    "number": 3,
    "time": "2020-01-01T00:00:00+00:00",
    "request_id": "another id",
    "request_digest": "ab" * 32,
    "certificate_digest": "cd" * 32,
    "level": "exact",
    "ratio": 0.0,
    "answer": "{}",
    "previous": "0" * 64,
    "hash": "0" * 64,
    "signer": Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex(),
    "signature": "00" * 64,
}


def test_every_column_is_rewritten() -> None:
    assert list(REWRITTEN) == [field.name for field in dataclasses.fields(Entry)]


@pytest.mark.parametrize("column", REWRITTEN)
def test_every_column_of_a_signed_entry_is_under_its_signature(column: str, kept: Path) -> None:
    record = read_history(kept)
    result = gf.Certificate.read(kept / CERTIFICATE)
    check_entries(record.entries)
    last = record.entries[-1]
    change = {column: REWRITTEN[column]}
    outside = column in ("hash", "signer", "signature")
    rewritten = dataclasses.replace(last, **change) if outside else rehashed(last, **change)
    certificate = None if column == "level" else result
    with pytest.raises(gf.Mismatch, match="^the signature of entry .|^entry . of the ledger is not signed"):
        check_entry_signature(rewritten, certificate)
    with pytest.raises(gf.Mismatch):
        check_entries((*record.entries[:-1], rewritten))
    re_signed = Ed25519PrivateKey.generate()
    signer, signature = entry_signer(re_signed)(signed_bytes(rewritten))
    with pytest.raises(gf.Mismatch):
        check_entries((*record.entries[:-1], dataclasses.replace(rewritten, signer=signer, signature=signature)))


@pytest.mark.parametrize("column", ["time", "request_id", "ratio", "answer", "signer", "signature"])
def test_a_last_entry_rewritten_without_the_key_is_caught_in_a_run(column: str, run: Path) -> None:
    """The answer with a word more, in outcome.json too: nothing but the entry's signature covers it."""
    value = REWRITTEN[column]
    if column == "answer":
        answer = json.loads((run / OUTCOME).read_text()) | {"approved by": "a notary"}
        value = json.dumps(answer)
        (run / OUTCOME).write_text(json.dumps(answer))
    rewritten_entry(**{column: value})(run)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch, match="^the signature of entry 2 of|^entry 2 .* not signed"):
        gf.verify_run(run)
    with pytest.raises(gf.Mismatch):
        gf.answer(run, gf.Request(nodes=["patient-0100"]))  # nothing is built on it either


def test_an_entry_without_its_signature_is_caught(run: Path) -> None:
    """Although the certificate in it is signed."""
    rewritten_entry(signer=None, signature=None)(run)
    rewrite_checksums(run)
    message = "^entry 2 of the ledger is not signed by whoever signed its certificate$"
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(run)
    with pytest.raises(gf.Mismatch, match=message):
        gf.answer(run, gf.Request(nodes=["patient-0100"]))


def chained(folder: Path, *certificates: gf.Certificate) -> tuple[Entry, ...]:
    """A ledger without a fault of these certificates, unsigned."""
    with Ledger(folder / "ledger.sqlite") as ledger:
        for number, certificate in enumerate(certificates):
            bare = dataclasses.replace(certificate, signature=None, follows=ledger.head)
            ledger.append(
                time=bare.made,
                request_id=str(number),
                request_digest=bare.digests["request"],
                certificate_digest=bare.digest,
                level=bare.level,
                ratio=bare.claim.ratio,
                answer=json.dumps({"certificate": bare.to_dict()}),
            )
        return ledger.entries()


SETTLED = {"epsilon": 2.0, "delta": 1e-6, "sigma": 0.06, "releases": 128, "floor": 0.5, "mu": 1e-3}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTLED)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_setting_that_changes_between_entries_is_caught(name: str, place: int, tmp_path: Path) -> None:
    """Also in the last certificate, and whatever else fits."""
    first = outcome().certificate
    certificates = [first, first, first]
    check_entries(chained(tmp_path, *certificates))
    settings = dict(first.settings) | {name: SETTLED[name]}
    certificates[place] = dataclasses.replace(first, settings=settings)
    (tmp_path / "changed").mkdir()
    with pytest.raises(gf.Mismatch, match=f"^{name} is .* in one certificate and .* in the one before$"):
        check_entries(chained(tmp_path / "changed", *certificates))


@pytest.mark.parametrize("part", ["model", "objective"])
def test_a_model_that_changes_between_entries_is_caught(part: str, tmp_path: Path) -> None:
    first = outcome().certificate
    change: dict[str, Any] = {part: dict(getattr(first, part)) | {"more": 1}}
    other = dataclasses.replace(first, **change)
    with pytest.raises(gf.Mismatch, match="^more is 1 in one certificate and None in the one before$"):
        check_entries(chained(tmp_path, first, other))


@pytest.mark.parametrize(
    "change", [{"level": "exact", "ratio": 0.0}, {"ratio": 0.01}, {"time": "2020-01-01T00:00:00Z"}]
)
def test_an_entry_that_says_something_else_than_its_certificate_is_caught(
    change: dict[str, Any], tmp_path: Path
) -> None:
    (entry,) = chained(tmp_path, outcome().certificate)
    check_entries((entry,))
    with pytest.raises(gf.Mismatch, match="^entry 1 of the ledger does not agree with its certificate$"):
        check_entries((rehashed(entry, **change),))


# -- older copies ----------------------------------------------------------------------------------------------------


def test_a_rolled_back_run_is_caught_by_its_head(kept: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(kept, tmp_path / "run"))
    older = Path(shutil.copytree(kept, tmp_path / "older"))
    before = read_history(run).head
    gf.answer(run, gf.Request(nodes=["patient-0100"]), key=KEY)
    now = read_history(run).head
    key = KEY.public_key()
    for place, head in ((run, now), (run, before), (older, before)):  # at it, past it, at it
        result = gf.verify_run(place, key=key, head=head)
        assert ROLLBACK not in result.unchecked
    assert ROLLBACK in gf.verify_run(older, key=key).unchecked  # without a head nobody can tell
    for head in (now, "1" * 64):
        with pytest.raises(gf.Mismatch, match="^the run is not at this head or past it: it was rolled back, or is an"):
            gf.verify_run(older, key=key, head=head)
    for head in ("", before.upper(), before[:-1]):
        with pytest.raises(gf.InputError, match="64 hexadecimal digits are needed"):
            gf.verify_run(older, key=key, head=head)


# -- noise that was used before --------------------------------------------------------------------------------------


@functools.cache
def two_releases() -> tuple[gf.Outcome, gf.Outcome]:
    """Of a model with enough weights to see half of a noise vector in another."""
    graph = patients()[1]
    first = gf.unlearn(sign_model(), graph, gf.Request(nodes=["patient-0300"]))
    return first, gf.unlearn(first.trained, first.graph, whole_request(graph))


def given_before(result: gf.Outcome) -> Evidence:
    return Evidence(result.certificate, result.trained, result.graph, released=result.released_theta)


def test_fresh_noise_passes() -> None:
    first, second = two_releases()
    result = verify(second, before=given_before(first))
    assert "fresh noise" in names(result)
    assert "fresh noise" not in result.unchecked
    assert "fresh noise" in verify(second).unchecked


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_noise_that_was_used_before_is_caught(share: float) -> None:
    """All of it, or that of half of the weights, around the new centre. Nothing else gives it away."""
    first, second = two_releases()
    old, fresh = first.released_theta - first.centre, noise(size=second.centre.numel(), sigma=SIGMA, seed=3)
    again = torch.arange(old.numel()) < share * old.numel()
    cheat = forged(second, released=second.centre + torch.where(again, old, fresh))
    assert names(verify(cheat)) == ALL
    with pytest.raises(gf.Mismatch, match="^the noise is at least in part that of the release before: correlation"):
        verify(cheat, before=given_before(first))


def test_noise_turned_round_is_caught_too() -> None:
    first, second = two_releases()
    cheat = forged(second, released=second.centre - (first.released_theta - first.centre))
    with pytest.raises(gf.Mismatch, match="correlation -"):
        verify(cheat, before=given_before(first))


def test_the_run_before_is_read_from_its_folder(tmp_path: Path) -> None:
    first, second = two_releases()
    before = gf.save_outcome(tmp_path / "first", first, key=KEY)
    gf.save_outcome(tmp_path / "second", second, after=before, key=KEY)
    assert "fresh noise" in names(gf.verify_run(tmp_path / "second", before=before, key=KEY.public_key()))
    cheat = forged(second, released=second.centre + (first.released_theta - first.centre))
    gf.save_outcome(tmp_path / "cheat", cheat, after=before, key=KEY)
    assert gf.verify_run(tmp_path / "cheat", key=KEY.public_key()).checks
    with pytest.raises(gf.Mismatch, match="^the noise is at least in part that of the release before"):
        gf.verify_run(tmp_path / "cheat", before=before, key=KEY.public_key())


@pytest.mark.slow
def test_honest_releases_seldom_look_alike() -> None:
    """One alarm in 1,000 pairs is allowed; at most 2 in 200, and 12 in 4,000, are hardly ever passed."""
    for pairs, size, most in ((200, 62, 2), (4000, 200, 12)):
        draws = np.random.default_rng(size).standard_normal((2, pairs, size))
        alarms = 0
        for one, other in zip(*torch.from_numpy(draws), strict=True):
            try:
                check_fresh(one, other)
            except gf.Mismatch:
                alarms += 1
        assert alarms <= most
    assert REUSE_FALSE_ALARM == 1e-3


def test_noise_of_another_number_of_weights_cannot_be_compared() -> None:
    with pytest.raises(gf.Mismatch, match="^the release before has another number of weights"):
        check_fresh(torch.ones(3), torch.ones(4))
    check_fresh(torch.zeros(3), torch.ones(3))  # nothing was added, so nothing was used again


# -- how little noise would have been caught -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [15, 62, 1000])
def test_noise_of_the_smallest_size_that_is_caught_is_caught(count: int) -> None:
    """In 99 of 100 cases; rightly drawn noise never is, and a little more than this size less often."""
    least = largest_detected_sigma(sigma=SIGMA, count=count)
    assert 0 < least < SIGMA
    rng = np.random.default_rng(0)

    def caught(size: float, cases: int = 400) -> float:
        alarms = 0
        for draws in rng.normal(scale=size, size=(cases, count)):
            try:
                check_gaussian(torch.from_numpy(draws), sigma=SIGMA, label="it")
            except gf.Mismatch:
                alarms += 1
        return alarms / cases

    assert caught(least) >= 0.97
    assert caught(SIGMA) == 0
    # The share by the test of the size alone, which is what the number is about.
    size = (least / SIGMA) ** 2 * rng.chisquare(count, 100_000)
    assert 0.988 < (size < stats.chi2.ppf(FALSE_ALARM / 2, count)).mean() < 0.992


def test_how_little_noise_would_have_been_caught_is_said() -> None:
    message = next(check.result for check in verify(outcome()).checks if check.name == "noise")
    least = largest_detected_sigma(sigma=SIGMA, count=62)
    assert f"a standard deviation up to {least:.2g} would be detected in 99 of 100 cases" in message
    assert least == pytest.approx(0.0149, abs=2e-4)


# -- a release that was refused --------------------------------------------------------------------------------------


def refused_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed run with one release, and then one that scored under the floor."""
    graph = small()[1]
    gf.save_run(folder, gf.train(graph, "sgc", sigma=SIGMA, floor=0.5), graph)
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 1.0)
    gf.answer(folder, gf.Request(nodes=[4]), request_id="first", key=KEY)
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 0.0)
    with pytest.raises(gf.Refused, match="under the floor 0.5, so nothing was released, and this counts"):
        gf.answer(folder, gf.Request(nodes=[5]), request_id="second", key=KEY)
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 1.0)
    return folder


def test_a_refused_release_is_in_the_ledger_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = refused_run(tmp_path / "run", monkeypatch)
    record = read_history(run)
    first, second = record.entries
    assert (second.number, second.request_id, second.level) == (2, "second", "refused")
    assert first.ratio
    assert second.ratio == first.ratio
    assert second.previous == first.hash
    certificates = check_entries(record.entries).certificates
    assert certificates[0] is not None
    assert certificates[1] is None
    check_entry_signature(second, None)
    assert second.signer == KEY.public_key().public_bytes_raw().hex()
    trained, graph = gf.load_run(run)
    assert trained.releases == (first.ratio, second.ratio)
    assert trained.releases_left == 62
    assert graph.num_nodes == 39  # nothing of the second request was taken out
    assert gf.releases_so_far(run, delta=1e-5).releases == 2
    result = gf.verify_run(run, key=KEY.public_key(), head=second.hash)
    assert {"ledger", "claim", "noise"} <= names(result)
    assert [annex.released for annex in record.annexes] == [True, False]
    public = json.loads(second.answer)
    assert set(public) == {"audience", "level", "refused", "digests", "releases_left"}


def test_a_refused_request_stays_refused_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = refused_run(tmp_path / "run", monkeypatch)
    for request_id in ("second", "third", None):  # noise is not drawn until it suits
        with pytest.raises(gf.Refused, match="^this request was refused before"):
            gf.answer(run, gf.Request(nodes=[5]), request_id=request_id, key=KEY)
    assert len(read_history(run).entries) == 2
    gf.answer(run, gf.Request(nodes=[6]), key=KEY)
    assert [entry.level for entry in read_history(run).entries] == ["certified", "refused", "certified"]
    assert gf.load_run(run)[0].releases_left == 61
    assert gf.verify_run(run, key=KEY.public_key()).checks


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"request_id": "another"},
        {"ratio": 0.0},
        {"ratio": None},
        {"time": "2020-01-01T00:00:00Z"},
        {"answer": '{"refused": "for no reason"}'},
        {"certificate_digest": "0" * 64},
        {"request_digest": "0" * 64},
    ],
)
def test_a_refused_entry_is_under_its_signature(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = refused_run(tmp_path / "run", monkeypatch)
    rewritten_entry(**change)(run)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch, match="^the (signature of entry 2|model does not count|certificate has 63)"):
        gf.verify_run(run)
    with pytest.raises(gf.Mismatch):
        gf.answer(run, gf.Request(nodes=[6]))


def test_a_refusal_that_nobody_signed_still_fits_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = refused_run(tmp_path / "run", monkeypatch)
    changed = json.dumps(json.loads(read_history(run).entries[1].answer) | {"refused": "for no reason"})
    rewritten_entry(answer=changed, signer=None, signature=None)(run)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch, match="^entry 2 of the ledger does not hold the refusal that it names$"):
        gf.verify_run(run)


def test_a_refused_entry_without_its_signature_is_caught_by_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no signed certificate beside it that tells who should have signed."""
    run = refused_run(tmp_path / "run", monkeypatch)
    other = Ed25519PrivateKey.generate()
    assert gf.verify_run(run, key=KEY.public_key()).checks
    rewritten_entry(request_id="another", signer=None, signature=None)(run)
    message = "^entry 2 of the ledger is not signed by whoever signed the certificates$"
    for key in (None, KEY.public_key()):
        with pytest.raises(gf.Mismatch, match=message):
            gf.verify_run(run, key=key)
    signer, signature = entry_signer(other)(signed_bytes(read_history(run).entries[1]))
    rewritten_entry(signer=signer, signature=signature)(run)
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(run, key=KEY.public_key())


def test_a_run_whose_releases_were_all_refused_is_accused_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = small()[1]
    run = gf.save_run(tmp_path / "run", gf.train(graph, "sgc", sigma=SIGMA, floor=0.5), graph)
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 0.0)
    with pytest.raises(gf.Refused):
        gf.answer(run, gf.Request(nodes=[5]), key=KEY)
    with pytest.raises(
        gf.InputError, match="holds no certificate: its requests were refused, and nothing was released$"
    ):
        gf.verify_run(run)
    monkeypatch.setattr(gf.Trained, "utility", lambda self, graph: 1.0)
    gf.answer(run, gf.Request(nodes=[6]), key=KEY)
    assert [entry.level for entry in read_history(run).entries] == ["refused", "certified"]
    assert gf.load_run(run)[0].releases_left == 62
    assert gf.verify_run(run, key=KEY.public_key()).checks


def test_a_refused_release_cannot_be_left_out_of_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = refused_run(tmp_path / "run", monkeypatch)
    releases = gf.load_run(run)[0].releases
    json_edit("run.json", releases=list(releases[:1]))(run)
    assert gf.load_run(run)[0].releases_left == 63
    with pytest.raises(gf.Mismatch, match="^(the model does not count a release that was refused|the certificate has)"):
        gf.verify_run(run)
    with pytest.raises(gf.Mismatch):
        gf.answer(run, gf.Request(nodes=[6]))


def test_a_model_whose_settings_were_changed_after_training_is_refused() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"]))
    for model in (trained, outcome.trained):
        model.module.powers = (1,)  # type: ignore[assignment]
    with pytest.raises(gf.InputError, match="other settings than its recipe says"):
        gf.unlearn(trained, graph, gf.Request(nodes=["patient-0018"]))
    with pytest.raises(gf.Mismatch, match="other settings than its recipe says"):
        gf.verify(outcome.certificate, outcome.trained, outcome.graph)
