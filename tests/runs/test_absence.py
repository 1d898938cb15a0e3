"""Proofs of absence from a run directory, and how they are checked without it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

import graphforget as gf
from cases import Run, RunJson, random_graph
from graphforget.certificates.audit_trees import AuditTrees
from graphforget.certificates.subject_tree import SubjectTree
from graphforget.privacy.salt import new_salt
from graphforget.runs.layout import PROOFS
from graphforget.runs.write import rewrite_checksums
from graphforget.verification.absence import WHICH_MODEL

pytestmark = pytest.mark.usefixtures("one_thread")
GONE, STAYS = "person-7", "person-8"


def named(graph: gf.Graph) -> gf.Graph:
    return dataclasses.replace(graph, subject_ids=tuple(f"person-{row}" for row in range(graph.num_nodes)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, and signed runs with names and with numbers that have forgotten node 7; `fresh` has answered nothing."""
    folder = tmp_path_factory.mktemp("made")
    private, _ = gf.make_keys(folder / "key")
    key = gf.private_key(private)
    plain = random_graph(5, nodes=30, edges=60)
    for name, graph, gone in (("named", named(plain), GONE), ("numbered", plain, 7)):
        gf.save_run(folder / name, gf.train(graph, "sgc"), graph)
        if name == "named":
            shutil.copytree(folder / name, folder / "fresh")
        gf.answer(folder / name, gf.Request(nodes=[gone]), key=key)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "gone", "never"), [("named", GONE, "nobody"), ("numbered", "7", "31")])
def test_an_auditor_checks_absence_without_the_run(
    name: str, gone: str, never: str, run: Run, run_json: RunJson, place: Path
) -> None:
    for subject in (gone, never):
        made = run_json("prove-absence", name, "--subject", subject, "--out", f"{subject}.json")
        assert (made["audience"], made["subject"], made["proof"]) == ("private", subject, f"{subject}.json")
    certificate = gf.Certificate.read(place / name / "certificate.json")
    shutil.copy(place / name / "certificate.json", place / "certificate.json")
    shutil.rmtree(place / name)
    for subject in (gone, never):
        result = run_json("verify-absence", f"{subject}.json", "--key", "key.pub", "--certificate", "certificate.json")
        assert (result["ok"], result["subject"], result["certificate"]) == (True, subject, certificate.id)
        assert result["audience"] == "private"
        ran = run("verify-absence", f"{subject}.json", "--key", "key.pub")
        assert (ran.code, ran.stdout.splitlines()[-1]) == (0, "The proof holds.")


def test_a_key_alone_does_not_show_which_model_a_certificate_is_of(place: Path) -> None:
    """The same signer may have trained another model, without the subject."""
    gf.answer("fresh", gf.Request(nodes=[STAYS]), key=gf.private_key("key"))
    proof, key = gf.prove_absence("fresh", STAYS), gf.public_key("key.pub")
    assert WHICH_MODEL in gf.verify_absence(proof, key=key).unchecked
    own = gf.verify_absence(proof, key=key, certificate=gf.Certificate.read("fresh/certificate.json"))
    assert WHICH_MODEL not in own.unchecked
    with pytest.raises(gf.Mismatch, match="another one than the certificate that was given"):
        gf.verify_absence(proof, key=key, certificate=gf.Certificate.read("named/certificate.json"))


@pytest.mark.parametrize(("name", "subject"), [("named", STAYS), ("numbered", "8")])
def test_nothing_is_written_for_somebody_who_is_there(name: str, subject: str, run: Run, place: Path) -> None:
    ran = run("prove-absence", name, "--subject", subject, "--out", "proof.json")
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert not (place / "proof.json").exists()
    with pytest.raises(gf.Refused, match="is in the graph"):
        gf.prove_absence(name, subject)


def test_bad_input_is_refused_in_a_sentence(run: Run, place: Path) -> None:
    (place / "there.json").write_text("mine")
    (place / "list.json").write_text("[]")
    prove = ("--subject", GONE, "--out", "proof.json")
    for arguments, message in (
        (("prove-absence", "fresh", *prove), "issues one with its next answer"),
        (("prove-absence", "nowhere", *prove), "is not a run directory"),
        (("prove-absence", "numbered", *prove), "give a node number from 0"),
        (("prove-absence", "named", "--subject", GONE, "--out", "there.json"), "--force overwrites it"),
        (("prove-absence", "named", "--subject", GONE, "--out", "named/proof.json"), "inside a run directory"),
        (("prove-absence", "named", "--subject", "\udc80", "--out", "proof.json"), "no text in Unicode"),
        (("verify-absence", "list.json"), "--key and --certificate are both missing"),
        (("verify-absence", "list.json", "--key", "key.pub"), "no proof of absence of schema"),
        (("verify-absence", "nowhere.json", "--key", "key.pub"), "cannot be read as a proof of absence"),
    ):
        ran = run(*arguments)
        assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), arguments
        assert message in ran.stderr
    assert (place / "there.json").read_text() == "mine"
    assert run("prove-absence", "named", "--subject", GONE, "--out", "there.json", "--force").code == 0
    assert gf.AbsenceProof.read(place / "there.json").subject == GONE


def test_the_next_requests_go_on_with_the_same_keys(place: Path) -> None:
    first = gf.prove_absence("named", GONE)
    gf.answer("named", gf.Request(nodes=["person-9"], attributes={"person-10": "all"}))
    assert gf.verify_run("named").checks[-1].name == "proofs of absence"
    proofs = [gf.prove_absence("named", subject) for subject in (GONE, "person-9")]
    for proof in proofs:
        gf.verify_absence(proof, certificate=gf.Certificate.read("named/certificate.json"))
    assert len({proof.to_dict()["opening"]["public_key"] for proof in (first, *proofs)}) == 1
    with pytest.raises(gf.Mismatch, match="another one than the certificate that was given"):
        gf.verify_absence(first, certificate=gf.Certificate.read("named/certificate.json"))
    with pytest.raises(gf.Mismatch, match="^the certificate is not signed$"):
        gf.verify_absence(proofs[0], key=gf.public_key("key.pub"))


def test_what_a_deletion_leaves_behind_is_no_salt_of_it(place: Path) -> None:
    before = load_file("numbered/proofs.safetensors")
    gf.answer("numbered", gf.Request(nodes=[9]))
    after = load_file("numbered/proofs.safetensors")
    salt = before["slots.salts"][9]
    assert salt.any()
    assert not after["slots.salts"][9].any()
    assert bytes(salt.tolist()) not in (place / "numbered" / PROOFS).read_bytes()
    assert (place / "numbered" / PROOFS).stat().st_mode & 0o077 == 0


def test_a_refused_release_leaves_the_trees(place: Path) -> None:
    graph = named(random_graph(5, nodes=30, edges=60))
    gf.save_run("floor", gf.train(graph, "sgc", floor=1.0), graph)
    with pytest.raises(gf.FloorMissed):
        gf.answer("floor", gf.Request(nodes=[GONE]))
    with pytest.raises(gf.InputError, match="no certificate from which absence can be shown"):
        gf.prove_absence("floor", GONE)


# -- forging -----------------------------------------------------------------------------------------------------------


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def apply(content: dict[str, Any]) -> dict[str, Any]:
        change(content)
        return content

    return apply


FORGED: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "another subject": (edited(lambda proof: proof.update(subject=STAYS)), "not one for this subject"),
    "a shorter path": (
        edited(lambda proof: proof["opening"]["path"].pop()),
        "not one for this subject",
    ),
    "a shorter cell": (edited(lambda proof: proof["opening"]["cell"].pop()), "does not lead to the root"),
    "another hash": (edited(lambda proof: proof["opening"]["cell"].reverse()), "does not lead to the root"),
    "another salt": (edited(lambda proof: proof["opening"].update(salt="00" * 32)), "does not lead to the root"),
    "another seed": (edited(lambda proof: proof["opening"].update(seed="00" * 32)), "does not lead to the root"),
    "another height": (edited(lambda proof: proof["opening"].update(height=5)), "not one for this subject"),
    "another root": (
        edited(lambda proof: proof["certificate"]["digests"].update(subjects="00" * 32)),
        "the signature does not fit",
    ),
    "no root": (edited(lambda proof: proof["certificate"]["digests"].pop("subjects")), "the signature does not fit"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_proof_does_not_hold(how: str, run: Run, place: Path) -> None:
    change, message = FORGED[how]
    content = change(json.loads(gf.prove_absence("named", GONE).to_json()))
    (place / "proof.json").write_text(json.dumps(content))
    ran = run("verify-absence", "proof.json", "--key", "key.pub", "--json")
    assert (ran.code, ran.stderr.count("\n"), json.loads(ran.stdout)["ok"]) == (1, 1, False)
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_absence(gf.AbsenceProof.from_dict(content), key=gf.public_key("key.pub"))


def test_the_proof_of_another_run_does_not_hold(place: Path) -> None:
    gf.answer("fresh", gf.Request(nodes=[GONE]), key=gf.private_key("key"))
    here, elsewhere = gf.prove_absence("named", GONE), gf.prove_absence("fresh", GONE)
    mixed = dataclasses.replace(here, opening=elsewhere.opening)
    with pytest.raises(gf.Mismatch, match="does not lead to the root in the certificate"):
        gf.verify_absence(mixed, key=gf.public_key("key.pub"))


def test_a_free_number_shows_nothing_where_people_have_names(place: Path) -> None:
    """Somebody may be called 7, and the number 7 is free."""
    proof = gf.prove_absence("numbered", "7")
    other = dataclasses.replace(proof, certificate=gf.Certificate.read("named/certificate.json"))
    with pytest.raises(gf.Mismatch, match="the certificate is for the one of subjects"):
        gf.verify_absence(other, key=gf.public_key("key.pub"))


def test_a_certificate_without_roots_shows_no_absence(place: Path) -> None:
    trained, graph = gf.load_run("fresh")
    certificate = gf.unlearn(trained, graph, gf.Request(nodes=[GONE])).certificate
    proof = dataclasses.replace(gf.prove_absence("named", GONE), certificate=certificate)
    with pytest.raises(gf.Mismatch, match="has no root from which absence can be shown"):
        gf.verify_absence(proof, certificate=certificate)


@pytest.mark.parametrize(
    "change",
    [
        edited(lambda proof: proof.pop("audience")),
        edited(lambda proof: proof.update(audience="public")),
        edited(lambda proof: proof.update(audience=["private"])),
        edited(lambda proof: proof.update(more=1)),
        edited(lambda proof: proof.update(subject=7)),
        edited(lambda proof: proof.update(tree=["subjects"])),
        edited(lambda proof: proof.update(tree="slots")),
        edited(lambda proof: proof.update(opening=[])),
        edited(lambda proof: proof["opening"].update(height=True)),
        edited(lambda proof: proof["opening"].update(seed=["00"])),
        edited(lambda proof: proof["opening"].update(path="00")),
        edited(lambda proof: proof["opening"].update(path=[7])),
        edited(lambda proof: proof["opening"].update(seed="x")),
        edited(lambda proof: proof["opening"].update(seed=proof["opening"]["seed"].upper() + " ")),
        edited(lambda proof: proof.update(certificate={})),
    ],
)
def test_what_is_no_proof_is_bad_input(change: Callable[[dict[str, Any]], dict[str, Any]], place: Path) -> None:
    content = json.loads(gf.prove_absence("named", GONE).to_json())
    assert gf.AbsenceProof.from_dict(content).to_dict() == content
    with pytest.raises(gf.InputError):
        gf.AbsenceProof.from_dict(change(content))


def test_trees_that_leave_somebody_out_are_found_by_verify(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator with the key can sign such trees. They are not those of the graph."""
    honest = AuditTrees.updated

    def updated(trees: AuditTrees, before: gf.Graph, after: gf.Graph) -> AuditTrees:
        result = honest(trees, before, after)
        assert result.subjects is not None
        return dataclasses.replace(result, subjects=result.subjects.without([STAYS]))

    monkeypatch.setattr(AuditTrees, "updated", updated)
    gf.answer("fresh", gf.Request(nodes=[GONE]), key=gf.private_key("key"))
    gf.verify_absence(gf.prove_absence("fresh", STAYS), key=gf.public_key("key.pub"))
    with pytest.raises(gf.Mismatch, match="are not those of the retained graph"):
        gf.verify_run("fresh", key=gf.public_key("key.pub"))


PARTS = (
    *("slots.numbers", "slots.salts", "slots.key", "slots.salt"),
    *("subjects.positions", "subjects.present", "subjects.seed", "subjects.key", "subjects.salt"),
)


def test_a_damaged_file_of_trees_is_found(run: Run, place: Path) -> None:
    tensors = load_file(place / "named" / PROOFS)
    assert sorted(tensors) == sorted(PARTS)  # no hash that could be believed
    prove = ("prove-absence", "named", "--subject", GONE, "--out", "proof.json")
    for name in PARTS:
        save_file({key: value for key, value in tensors.items() if key != name}, place / "named" / PROOFS)
        ran = run(*prove)
        assert (ran.code, "is not the file that was written" in ran.stderr) == (2, True)
        rewrite_checksums(place / "named")
        ran = run(*prove)
        # Without the seed there is no tree of subjects, and its other parts should not be there.
        missing = "subjects." if name == "subjects.seed" else f"lacks {name}, or has it"
        assert (ran.code, ran.stderr.count("\n"), missing in ran.stderr) == (2, 1, True)
        with pytest.raises(gf.Mismatch, match=missing):
            gf.verify_run("named")


def without_somebody(tensors: dict[str, Tensor], name: str) -> Tensor:
    """A part as it is where somebody who stays had gone, or has never been."""
    part = tensors[name].clone()
    if name == "subjects.present":
        part[int(part.nonzero()[3])] = False
    elif name in ("slots.numbers", "subjects.positions"):
        part[-1] += 1
    elif name == "slots.salts":
        part[8] = 0
    else:
        part[0, 0] ^= 1
    return part


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_signed_on_trees_that_somebody_has_changed(name: str, run: Run, place: Path) -> None:
    """Whoever can write the run directory, and has not the key, gets no false absence certified, and no traceback."""
    file = place / "named" / PROOFS
    tensors = load_file(file)
    save_file(tensors | {name: without_somebody(tensors, name)}, file)
    rewrite_checksums(place / "named")
    (place / "request.json").write_text(json.dumps({"nodes": ["person-29"]}))
    before = (place / "named" / "certificate.json").read_bytes()
    for command in (
        ("prove-absence", "named", "--subject", STAYS, "--out", "proof.json"),
        ("verify", "named"),
        ("unlearn", "named", "request.json", "--in-place", "--key", "key"),
    ):
        ran = run(*command)
        assert (ran.code, ran.stderr.count("\n")) == (1, 1), ran.stderr
        assert "proofs.safetensors: does not match the last certificate" in ran.stderr
    assert (place / "named" / "certificate.json").read_bytes() == before


def test_trees_without_their_file_are_missed(run: Run, place: Path) -> None:
    (place / "named" / PROOFS).unlink()
    assert run("prove-absence", "named", "--subject", GONE, "--out", "proof.json").code == 2
    run_file = json.loads((place / "named" / "run.json").read_text())
    del run_file["sha256"][PROOFS]
    (place / "named" / "run.json").write_text(json.dumps(run_file))
    ran = run("prove-absence", "named", "--subject", GONE, "--out", "proof.json")
    assert (ran.code, "does not match the last certificate" in ran.stderr) == (1, True)


def test_somebody_who_was_left_out_cannot_be_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of trees that were signed so: the leaf of somebody else must not be emptied instead."""
    honest = AuditTrees.of.__func__  # type: ignore[attr-defined]

    def of(kind: type[AuditTrees], graph: gf.Graph, **options: Any) -> AuditTrees:
        trees: AuditTrees = honest(kind, graph, **options)
        names = [name for name in graph.subject_ids or () if name != STAYS]
        return dataclasses.replace(trees, subjects=SubjectTree.of(names, new_salt()))

    monkeypatch.setattr(AuditTrees, "of", classmethod(of))
    gf.answer("fresh", gf.Request(nodes=[GONE]))
    with pytest.raises(gf.Mismatch, match="lack somebody who is in the graph"):
        gf.answer("fresh", gf.Request(nodes=[STAYS]))


def test_an_outcome_that_is_saved_elsewhere_leaves_its_roots_behind(place: Path) -> None:
    outcome = gf.answer("fresh", gf.Request(nodes=[GONE]), key=gf.private_key("key")).outcome
    assert outcome is not None
    saved = gf.save_outcome("elsewhere", outcome, key=gf.private_key("key"))
    certificate = gf.Certificate.read(saved / "certificate.json")
    assert not {"slots", "subjects"} & (set(certificate.digests) | set(certificate.algorithms))
    gf.verify_run(saved, key=gf.public_key("key.pub"))
    with pytest.raises(gf.InputError, match="no certificate from which absence can be shown"):
        gf.prove_absence(saved, GONE)
    gf.answer(saved, gf.Request(nodes=[STAYS]))
    for subject in (GONE, STAYS):
        assert gf.prove_absence(saved, subject).subject == subject
    assert gf.verify_run("fresh").checks[-1].name == "proofs of absence"


def test_half_a_character_is_bad_input(place: Path) -> None:
    for name, gone in (("named", GONE), ("numbered", "7")):
        proof = dataclasses.replace(gf.prove_absence(name, gone), subject="\ud800")
        with pytest.raises(gf.InputError, match="no text in Unicode"):
            gf.verify_absence(proof, certificate=proof.certificate)
