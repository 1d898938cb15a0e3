"""Claims as types: what each kind says, writes down and rechecks, and that nothing depends on how it is worded."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import graphforget as gf
from cases import idea, random_graph, train_without_noise
from graphforget.certificates import conditions, document, levels
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.combined import Combined
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.kinds import KINDS, read_claim
from graphforget.certificates.claims.objective_noise import ObjectiveNoise
from graphforget.certificates.claims.own_training import OwnTraining
from graphforget.certificates.claims.paper_bound import PaperBound
from graphforget.certificates.claims.residual_ball import DECLARED_CONVEX, ResidualBall
from graphforget.certificates.conditions import CONVEX
from graphforget.privacy.gaussian import epsilon_of, mu_gdp
from graphforget.runs.history import read_history
from graphforget.verification.evidence import Evidence

pytestmark = pytest.mark.usefixtures("one_thread")

KEY = Ed25519PrivateKey.generate()
NAN, INF = float("nan"), float("inf")
REQUEST = gf.Request(nodes=[4])
HOLDS = gf.Constants(strong_convexity=1e-4, lipschitz=100.0, loss_bound=100.0)  # of the models in these tests

BALL = ResidualBall(epsilon=1.0, delta=1e-5, sigma=0.3, mu=1e-2, releases=8, tolerance=0.02)
PAPER = PaperBound(epsilon=1.0, delta=1e-5, sigma=3.0, constants=gf.Constants(), conditions=("a", "b"))
NOISE = ObjectiveNoise(epsilon=1.0, delta=1e-5, noise=2.0, budget=0.5, conditions=("a",), sigma=0.1)
EXAMPLES: dict[str, Claim] = {
    "exact": Exact(),
    "exact with noise": Exact(sigma=0.5),
    "own training": OwnTraining(),
    "ball": BALL,
    "ball with a condition": dataclasses.replace(BALL, conditions=(DECLARED_CONVEX,)),
    "paper": PAPER,
    "void paper": dataclasses.replace(PAPER, epsilon=None),
    "noise": NOISE,
    "noise with constants": dataclasses.replace(NOISE, constants=HOLDS),
    "void noise": dataclasses.replace(NOISE, epsilon=None),
    "empirical": Empirical("nobody looked"),
    "empirical and void": Empirical("it failed", sigma=0.1, around_centre=True, refuted=True),
    "combined": Combined({"shards": Exact(), "aggregation": BALL}),
}
LEVEL = {
    **dict.fromkeys(("exact", "exact with noise", "own training"), "exact"),
    **dict.fromkeys(("ball", "combined"), "certified"),
    **dict.fromkeys(("ball with a condition", "paper", "noise", "noise with constants"), "conditional"),
    **dict.fromkeys(("void paper", "void noise", "empirical", "empirical and void"), "empirical"),
}


# -- on paper --------------------------------------------------------------------------------------------------------


def on_paper(claim: Claim) -> dict[str, Any]:
    return json.loads(json.dumps(claim.to_dict(), allow_nan=False))


def test_there_is_an_example_of_every_kind() -> None:
    assert {claim.kind for claim in EXAMPLES.values()} == set(KINDS)
    assert {kind: type_.kind for kind, type_ in KINDS.items()} == {kind: kind for kind in KINDS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_claim_survives_json(name: str) -> None:
    claim = EXAMPLES[name]
    again = read_claim(on_paper(claim))
    assert type(again) is type(claim)
    assert again == claim
    assert on_paper(again) == on_paper(claim)
    assert again.level == LEVEL[name]
    assert again.statement == claim.statement
    assert (again.ratio, again.centred, again.void) == (claim.ratio, claim.centred, claim.void)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_missing_or_unknown_field_is_refused(name: str) -> None:
    content = on_paper(EXAMPLES[name])
    for gone in content:
        with pytest.raises(gf.InputError):
            read_claim({field: value for field, value in content.items() if field != gone})
    for more in ("colour", "distance", "level", "statement", "epsilon_measured"):
        with pytest.raises(gf.InputError):
            read_claim(content | {more: 1.0})


@pytest.mark.parametrize("kind", ["exact/2", "exact", "EXACT/1", "", None, 5, ["exact/1"], {"exact/1": 1}])
def test_an_unknown_kind_is_refused(kind: Any) -> None:
    with pytest.raises(gf.InputError, match="^the claim is of kind .*, one of exact/1, .* is needed$"):
        read_claim(on_paper(Exact()) | {"kind": kind})


@pytest.mark.parametrize("content", [None, [], "exact/1", 5, {}, [{"kind": "exact/1", "sigma": 0.0}]])
def test_what_is_no_claim_is_refused(content: Any) -> None:
    with pytest.raises(gf.InputError, match="^the claim is of kind None"):
        read_claim(content)


WRONG: tuple[Any, ...] = (None, "text", "1", True, [], {}, [1.0], NAN, INF, -INF, -1.0, 10**400)


@pytest.mark.parametrize(
    "name", ["exact", "own training", "ball", "paper", "noise", "noise with constants", "empirical"]
)
def test_a_field_of_another_type_is_refused(name: str) -> None:
    content = on_paper(EXAMPLES[name])
    for field in content:
        for wrong in WRONG:
            allowed = {
                "conditions": wrong == [] and name != "own training",  # which has one condition, always
                "reason": isinstance(wrong, str),
                "constants": wrong == {} or (wrong is None and name.startswith("noise")),  # {}: the paper's own
                "epsilon": wrong is None and name.split()[0] in ("paper", "noise"),
                **dict.fromkeys(("around_centre", "refuted"), wrong is True),
            }.get(field, False)
            if allowed:
                assert read_claim(content | {field: wrong}).kind == content["kind"]
                continue
            with pytest.raises(gf.InputError) as caught:
                read_claim(content | {field: wrong})
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("conditions", ["convex loss", [5], [None], [["a"]], {"a": 1}, None])
@pytest.mark.parametrize("name", ["ball", "paper", "noise"])
def test_conditions_are_a_list_of_ids(name: str, conditions: Any) -> None:
    with pytest.raises(gf.InputError, match="^the claim's conditions are .*, a list of ids is needed$"):
        read_claim(on_paper(EXAMPLES[name]) | {"conditions": conditions})


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_claim_cannot_be_changed_by_accident(name: str) -> None:
    claim = EXAMPLES[name]
    field = dataclasses.fields(claim)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(claim, field, 0.0)


def test_numbers_are_asked_for_by_name() -> None:
    assert [BALL.number(name) for name in ("epsilon", "delta", "sigma", "tolerance")] == [1.0, 1e-5, 0.3, 0.02]
    assert [Exact().number(name) for name in ("epsilon", "delta", "sigma", "tolerance")] == [0.0, 0.0, 0.0, None]
    assert [Empirical("-").number(name) for name in ("epsilon", "delta", "sigma")] == [None, None, 0.0]
    assert dataclasses.replace(PAPER, epsilon=None).number("epsilon") is None
    assert (BALL.ratio, Exact().ratio, PAPER.ratio, NOISE.ratio) == (0.02 / 0.3, 0.0, None, None)


# -- issued, rechecked and edited ------------------------------------------------------------------------------------


@functools.cache
def graph() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60)


@functools.cache
def issued(name: str) -> gf.Outcome:
    """An honest outcome with a claim of each kind that methods issue."""
    made: dict[str, Callable[[], gf.Outcome]] = {
        "exact": lambda: gf.unlearn(train_without_noise(graph(), "sgc"), graph(), REQUEST),
        "exact network": lambda: gf.unlearn(
            gf.train(graph(), "gcn", hidden=4, epochs=10, polish_steps=2), graph(), REQUEST
        ),
        "ball": lambda: gf.unlearn(gf.train(graph(), "sgc", sigma=0.3), graph(), REQUEST),
        "paper": lambda: idea(train_without_noise(graph(), "sgc"), graph(), REQUEST, constants=HOLDS),
        "noise": lambda: gf.unlearn(objective_noise(), graph(), REQUEST, method="cgu"),
        "noise in both": lambda: gf.unlearn(objective_noise(), graph(), REQUEST, method="cgu", sigma=0.1),
        "empirical": lambda: gf.unlearn(
            gf.train(graph(), "sgc", sigma=0.3), graph(), REQUEST, method="retrain", start="continued"
        ),
    }
    return made[name]()


@functools.cache
def objective_noise() -> gf.Trained:
    return gf.train(graph(), "cgu", mu=0.01, objective_noise=200.0)


ISSUED = {
    "exact": Exact,
    "exact network": Exact,
    "ball": ResidualBall,
    "paper": PaperBound,
    "noise": ObjectiveNoise,
    "noise in both": ObjectiveNoise,
    "empirical": Empirical,
}


def evidence(outcome: gf.Outcome) -> Evidence:
    return Evidence(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released_theta)


def replaced(claim: Claim, **changes: Any) -> Claim:
    """A claim of whatever kind with other fields."""
    return dataclasses.replace(claim, **changes)


def verified(outcome: gf.Outcome, claim: Claim | None = None, **stated: Any) -> gf.Verification:
    changes = stated | ({} if claim is None else {"claim": claim})
    certificate = dataclasses.replace(outcome.certificate, **changes)
    return gf.verify(
        certificate, outcome.trained, outcome.graph, released=outcome.released_theta, annexes=[outcome.annex]
    )


@pytest.mark.parametrize("name", ISSUED)
def test_what_is_issued_holds_when_it_is_rechecked(name: str) -> None:
    outcome = issued(name)
    claim = outcome.certificate.claim
    assert type(claim) is ISSUED[name]
    assert not claim.void
    message = claim.recheck(evidence(outcome))
    assert message
    assert "\n" not in message
    assert read_claim(on_paper(claim)).recheck(evidence(outcome)) == message
    result = {check.name: check.result for check in verified(outcome).checks}
    assert result["claim"] == f"level {claim.level!r}: {message}"


NUMBERS = {
    "exact": ("sigma",),
    "exact network": ("sigma",),
    "ball": ("epsilon", "delta", "sigma", "mu", "releases", "tolerance"),
    "paper": ("epsilon", "delta", "sigma"),
    "noise": ("epsilon", "delta", "noise", "budget", "sigma"),
    "noise in both": ("epsilon", "delta", "noise", "budget", "sigma"),
    "empirical": ("sigma",),
}


@pytest.mark.parametrize(("name", "number"), [(name, number) for name in NUMBERS for number in NUMBERS[name]])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_number_that_was_changed_is_a_mismatch(name: str, number: str, factor: float) -> None:
    outcome = issued(name)
    old = getattr(outcome.certificate.claim, number)
    if isinstance(outcome.certificate.claim, PaperBound) and number == "sigma":
        factor = factor**4  # noise that the bound sized: of 15 weights no test can tell less
    new: Any = old * factor if old else factor
    new = int(new) if number == "releases" else new
    with pytest.raises(gf.Mismatch):
        verified(outcome, dataclasses.replace(outcome.certificate.claim, **{number: new}))


@pytest.mark.parametrize("name", ["ball", "paper", "noise"])
@pytest.mark.parametrize(("number", "factor"), [("epsilon", 0.5), ("delta", 1e-3)])
def test_a_better_number_is_a_mismatch_where_it_is_listed_as_chosen_too(name: str, number: str, factor: float) -> None:
    outcome = issued(name)
    new = getattr(outcome.certificate.claim, number) * factor
    claim = dataclasses.replace(outcome.certificate.claim, **{number: new})
    with pytest.raises(gf.Mismatch, match="^(the tolerance|epsilon) is .* (allow|imply|implies) "):
        verified(outcome, claim, chosen={number: new})


@pytest.mark.parametrize("name", ISSUED)
def test_a_claim_of_another_kind_is_a_mismatch(name: str) -> None:
    """Each with the numbers that the model has; nothing is claimed by an empirical one."""
    outcome = issued(name)
    for other in ("exact", "ball", "paper", "noise"):
        claim = issued(other).certificate.claim
        if type(claim) is type(outcome.certificate.claim):
            continue
        with pytest.raises(gf.Mismatch):
            verified(outcome, claim)


def test_conditions_that_are_needed_must_be_listed() -> None:
    for name in ("paper", "noise"):
        claim = issued(name).certificate.claim
        listed = claim.to_dict()["conditions"]
        assert len(listed) == 4
        for gone in listed:
            fewer = replaced(claim, conditions=tuple(one for one in listed if one != gone))
            with pytest.raises(gf.Mismatch, match=f"^the claim does not list a condition that it needs: {gone}$"):
                fewer.recheck(evidence(issued(name)))


@pytest.mark.parametrize("name", ["exact", "exact network", "ball", "paper", "noise"])
def test_a_model_that_may_carry_data_has_no_guarantee(name: str) -> None:
    outcome = issued(name)
    carries = dataclasses.replace(outcome.trained, certification_blockers=("layer 'norm' keeps statistics",))
    with pytest.raises(gf.Mismatch, match="^the level is too high for this model: layer 'norm'"):
        outcome.certificate.claim.recheck(dataclasses.replace(evidence(outcome), trained=carries))


def test_a_void_claim_claims_nothing_and_has_no_epsilon() -> None:
    for name in ("paper", "noise"):
        outcome = issued(name)
        void = replaced(outcome.certificate.claim, epsilon=None)
        assert (void.level, void.void, void.number("epsilon"), void.ratio) == ("empirical", True, None, None)
        assert void.recheck(evidence(outcome)) == "nothing is claimed"
        assert void.unchecked(evidence(outcome)) == ()


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0, 1e6])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-3])
def test_the_budget_of_an_epsilon_implies_this_epsilon(epsilon: float, delta: float) -> None:
    """`recheck` holds the one against the other."""
    assert epsilon_of(ratio=mu_gdp(epsilon=epsilon, delta=delta), delta=delta) == pytest.approx(epsilon, rel=1e-7)


# -- claims of claims ------------------------------------------------------------------------------------------------


@dataclass
class Ensemble:
    """Stands in for a model whose parts have claims of their own."""

    parts: dict[str, Evidence]
    asked: list[str] = dataclasses.field(default_factory=list)

    def part(self, name: str) -> Evidence:
        self.asked.append(name)
        if name not in self.parts:
            raise gf.Mismatch(f"there is no part {name!r}")
        return self.parts[name]


def combined(**parts: str) -> tuple[Combined, Ensemble]:
    """Of honest outcomes by name."""
    claims = {name: issued(source).certificate.claim for name, source in parts.items()}
    return Combined(claims), Ensemble({name: evidence(issued(source)) for name, source in parts.items()})


def test_a_combined_claim_holds_if_every_part_does() -> None:
    claim, subject = combined(first="exact", second="exact network", aggregation="ball")
    assert claim.recheck(subject) == "; ".join(  # type: ignore[arg-type]
        f"{name}: {claim.parts[name].recheck(subject.parts[name])}" for name in ("first", "second", "aggregation")
    )
    assert subject.asked == ["first", "second", "aggregation"]
    gaps = claim.unchecked(subject)  # type: ignore[arg-type]
    assert gaps == Exact().unchecked(subject.parts["first"])  # what two parts leave open is said once
    assert read_claim(on_paper(claim)) == claim


def test_a_part_that_does_not_hold_is_a_mismatch() -> None:
    claim, subject = combined(first="exact", aggregation="ball")
    moved = subject.parts["aggregation"].trained.with_weights(issued("ball").trained.theta + 1.0)
    subject.parts["aggregation"] = dataclasses.replace(subject.parts["aggregation"], trained=moved)
    with pytest.raises(gf.Mismatch, match="over the tolerance"):
        claim.recheck(subject)  # type: ignore[arg-type]
    claim, subject = combined(first="exact", aggregation="ball")
    renamed = Combined({"first": claim.parts["first"], "other": claim.parts["aggregation"]})
    with pytest.raises(gf.Mismatch, match="^there is no part 'other'$"):
        renamed.recheck(subject)  # type: ignore[arg-type]
    swapped = Combined({"first": claim.parts["aggregation"], "aggregation": claim.parts["first"]})
    with pytest.raises(gf.Mismatch):
        swapped.recheck(subject)  # type: ignore[arg-type]


def test_a_claim_about_parts_of_a_model_without_parts_is_refused() -> None:
    claim, _ = combined(first="exact")
    with pytest.raises(gf.Mismatch, match="^the claim is about a part 'first', and the model has none$"):
        claim.recheck(evidence(issued("exact")))
    with pytest.raises(gf.Mismatch, match="not about all parts of the model: it has none$"):
        verified(issued("exact"), claim)


@pytest.mark.parametrize(
    ("parts", "level"),
    [
        ((Exact(), Exact()), "exact"),
        ((Exact(), BALL, Exact()), "certified"),
        ((Exact(), PAPER), "conditional"),
        ((Empirical("-"), Exact()), "empirical"),
        ((BALL, Empirical("-")), "empirical"),
    ],
)
def test_the_level_is_the_weakest(parts: tuple[Claim, ...], level: str) -> None:
    claim = Combined({str(number): part for number, part in enumerate(parts)})
    assert claim.level == level
    (weakest, *_) = [part for part in parts if part.level == level]
    for name in ("epsilon", "delta", "sigma", "tolerance"):
        assert claim.number(name) == weakest.number(name)
    assert (claim.ratio, claim.centred) == (weakest.ratio, weakest.centred)
    assert not claim.void
    assert Combined({"void": Empirical("-", refuted=True), "other": Exact()}).void


@pytest.mark.parametrize("second", [BALL, PAPER, NOISE])
def test_two_parts_with_an_epsilon_are_refused(second: Claim) -> None:
    with pytest.raises(gf.InputError, match="^a combined claim has two parts with an epsilon, one is possible$"):
        Combined({"one": BALL, "two": second})
    content = {"kind": "combined/1", "parts": {"one": on_paper(BALL), "two": on_paper(second)}}
    with pytest.raises(gf.InputError, match="two parts with an epsilon"):
        read_claim(content)


def test_claims_of_claims_of_claims_are_refused() -> None:
    inner = Combined({"a": Exact()})
    with pytest.raises(gf.InputError, match="^a combined claim cannot hold another one$"):
        Combined({"b": inner})
    with pytest.raises(gf.InputError, match="^a combined claim cannot hold another one$"):
        read_claim({"kind": "combined/1", "parts": {"b": on_paper(inner)}})


@pytest.mark.parametrize("parts", [{}, None, [], "parts", {"a": None}, {"a": {}}, {"a": {"kind": "x/1"}}, {"a": 5}])
def test_parts_that_are_none_are_refused(parts: Any) -> None:
    with pytest.raises(gf.InputError):
        read_claim({"kind": "combined/1", "parts": parts})


# -- words -----------------------------------------------------------------------------------------------------------


def reword(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sentence that a certificate or a claim holds, in other words."""
    for condition in conditions.SENTENCES:
        monkeypatch.setitem(conditions.SENTENCES, condition, "autre condition")
    for level in levels.MEANING:
        monkeypatch.setitem(levels.MEANING, level, "autre niveau")
    for module in (levels, document):
        monkeypatch.setattr(module, "NOT_COVERED", ("autre chose",))
        monkeypatch.setattr(module, "ESTIMATED", "autre estimation")
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "statement", property(lambda self: "autre phrase"))


def run_of(name: str, folder: Path) -> Path:
    """A signed run after two requests, each with a claim of this kind."""
    options: dict[str, Any] = {"ball": {"sigma": 0.3}, "exact": {"sigma": 0.0}, "paper": {"sigma": 0.0}}[name]
    gf.save_run(folder, gf.train(graph(), "sgc", **options), graph())
    for node in (4, 5):
        further_request(name, folder, node)
    return folder


def further_request(name: str, folder: Path, node: int) -> None:
    given: dict[str, Any] = {"method": "idea", "constants": HOLDS} if name == "paper" else {}
    gf.answer(folder, gf.Request(nodes=[node]), key=KEY, **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ball", "exact", "paper"])
@pytest.mark.parametrize("reworded_first", [False, True])
def test_rewording_a_sentence_breaks_no_certificate(name: str, reworded_first: bool, tmp_path: Path) -> None:
    """Neither one that was issued before, nor one that was issued with the other words; and runs go on."""
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as other:
        if reworded_first:
            reword(other)
        run_of(name, folder)
    words = gf.Certificate.read(folder / "certificate.json").words
    assert (words["statement"] == "autre phrase") == reworded_first
    assert (words["not_covered"] == ["autre chose"]) == reworded_first
    with pytest.MonkeyPatch.context() as other:
        if not reworded_first:
            reword(other)
        result = gf.verify_run(folder, key=KEY.public_key())
        assert {"claim", "signature", "ledger"} <= {check.name for check in result.checks}
        further_request(name, folder, 6)
        assert gf.verify_run(folder, key=KEY.public_key()).checks
        assert len(read_history(folder).entries) == 3
    assert gf.verify_run(folder, key=KEY.public_key()).checks


@pytest.mark.parametrize("name", ISSUED)
def test_rewording_a_sentence_changes_no_recheck(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = issued(name)
    before = verified(outcome)
    content = outcome.certificate.to_dict()
    reword(monkeypatch)
    assert outcome.certificate.statement == "autre phrase"
    assert verified(outcome) == before
    assert outcome.certificate.to_dict() == content


def test_what_was_refuted_is_known_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence in a history would not be found again once it is worded otherwise."""
    outcome = issued("paper")
    reword(monkeypatch)
    refuted = outcome.trained.amend_last_entry(refuted=(CONVEX,))
    with pytest.raises(gf.Mismatch, match=f"a condition does not hold, {CONVEX}$"):
        outcome.certificate.claim.recheck(dataclasses.replace(evidence(outcome), trained=refuted))
