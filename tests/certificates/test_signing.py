"""Certificates on paper: what a claim may say, what a document must hold, and that a signature covers all of it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

import graphforget as gf
from cases import any_values, idea, random_graph, train_without_noise
from graphforget.certificates.chain import START, Entry
from graphforget.certificates.claims.kinds import read_claim
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.document import DIGESTS, SCHEMA, Certificate, canonical
from graphforget.certificates.ledger import Ledger
from graphforget.certificates.levels import LEVELS, MEANING, NOT_COVERED
from graphforget.certificates.residual import Residual
from graphforget.certificates.signing import check_entry_signature, check_signature, entry_signer
from graphforget.errors import OtherVersion
from graphforget.privacy.gaussian import tolerance
from graphforget.privacy.rounding import rounded_up

KEY = Ed25519PrivateKey.generate()
PASSED = ("epsilon", "delta", "sigma", "mu", "releases", "tolerance")
MEASURED = ("distance", "epsilon_measured", "epsilon_under_constants", "sigma_needed", "sigma_by_paper", "changed")
HOLDS = gf.Constants(strong_convexity=1e-4, lipschitz=100.0, loss_bound=100.0)  # for the model of these tests
NAN, INF = float("nan"), float("inf")


def certificate(level: str = "certified") -> Certificate:
    return made(level)


@functools.cache
def made(level: str) -> Certificate:
    graph = random_graph(3, nodes=40, edges=60)
    request = gf.Request(nodes=[4])
    if level == "exact":
        result = gf.unlearn(train_without_noise(graph, "sgc"), graph, request)
    elif level == "empirical":
        result = gf.unlearn(gf.train(graph, "sgc"), graph, request, method="retrain", start="continued")
    elif level == "conditional":
        result = idea(train_without_noise(graph, "sgc"), graph, request, constants=HOLDS)
    else:
        result = gf.unlearn(gf.train(graph, "sgc"), graph, request)
    assert result.level == level
    return result.certificate


def document(level: str = "certified", **changes: Any) -> dict[str, Any]:
    return certificate(level).to_dict() | changes


def with_claim(level: str = "certified", **changes: Any) -> dict[str, Any]:
    content = document(level)
    return content | {"claim": content["claim"] | changes}


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a document that holds nothing else."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    if isinstance(content, dict | list) and content:
        for name, value in inner:
            yield from leaves(value, (*path, name))
    else:
        yield path


def edited(content: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """With one thing in it changed."""
    content = copy.deepcopy(content)
    holder: Any = content
    for name in path[:-1]:
        holder = holder[name]
    old = holder[path[-1]]
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int):
        new = old + 1
    elif isinstance(old, float):
        new = old * (1 + 1e-15) + 1e-300
    elif isinstance(old, str):
        new = next(level for level in LEVELS if level != old) if path == ("level",) else _other_word(old)
    else:
        new = {None: 0.5}.get(old) if old is None else [*old, "more"] if isinstance(old, list) else {"more": 1}
    holder[path[-1]] = new
    assert new != old
    return content


def _other_word(old: str) -> str:
    return ("1" if old[0] == "0" else "0") + old[1:]


# -- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_private_key_is_its_owners_alone(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        private, public = gf.make_keys(tmp_path / "keys" / "key")
    finally:
        os.umask(before)
    assert (private, public) == (tmp_path / "keys" / "key", tmp_path / "keys" / "key.pub")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644 & ~mask
    assert b"BEGIN PRIVATE KEY" in private.read_bytes()
    assert b"BEGIN PUBLIC KEY" in public.read_bytes()
    assert b"PRIVATE" not in public.read_bytes()


def test_the_two_files_belong_together(tmp_path: Path) -> None:
    private, public = gf.make_keys(tmp_path / "key")
    made = gf.private_key(str(private))
    assert made.public_key().public_bytes_raw() == gf.public_key(str(public)).public_bytes_raw()
    other, _ = gf.make_keys(tmp_path / "other")
    assert gf.private_key(other).private_bytes_raw() != made.private_bytes_raw()
    signer = check_signature(gf.signed(certificate(), made), gf.public_key(public))
    assert signer == made.public_key().public_bytes_raw().hex()


@pytest.mark.parametrize("taken", ["key", "key.pub"])
def test_a_key_is_never_overwritten(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(gf.InputError, match=f"^{tmp_path / taken} exists already, and a key is never overwritten$"):
        gf.make_keys(tmp_path / "key")
    assert os.listdir(tmp_path) == [taken]
    assert (tmp_path / taken).read_text() == "precious"


@pytest.mark.parametrize("taken", ["key", "key.pub"])
def test_not_even_a_link_to_nowhere_is_written_through(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(gf.InputError, match="^the keys cannot be written: "):
        gf.make_keys(tmp_path / "key")
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_where_no_key_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(gf.InputError, match="^the keys cannot be written: ") as caught:
        gf.make_keys(tmp_path / "file" / "key")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o666, 0o610, 0o602])
def test_a_private_key_that_is_open_to_others_is_refused(mode: int, tmp_path: Path) -> None:
    private, _ = gf.make_keys(tmp_path / "key")
    private.chmod(mode)
    with pytest.raises(gf.InputError, match=f"^{private} can be read by others, set its mode to 600"):
        gf.private_key(private)
    private.chmod(0o400)
    assert gf.private_key(private)


def wrong_files(folder: Path) -> dict[str, Path]:
    other = ec.generate_private_key(ec.SECP256R1())
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    locked = (serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret"))
    shown = other.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    contents = {
        "empty": b"",
        "text": b"a letter\n",
        "noise": bytes(range(256)),
        "cut": b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n",
        "another kind": other.private_bytes(serialization.Encoding.PEM, *plain),
        "another kind, public": shown,
        "with a password": KEY.private_bytes(serialization.Encoding.PEM, *locked),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    (folder / "folder").mkdir()
    private, public = gf.make_keys(folder / "key")
    public.chmod(0o600)
    return {name: folder / name for name in (*contents, "folder", "nowhere")} | {"private": private, "public": public}


def test_wrong_files_are_told_in_one_sentence(tmp_path: Path) -> None:
    files = wrong_files(tmp_path)
    for read, right in ((gf.private_key, "private"), (gf.public_key, "public")):
        assert read(files[right])
        for name, path in files.items():
            if name != right:
                with pytest.raises(gf.InputError, match=f"^{path} (cannot be read as|holds)") as caught:
                    read(path)
                assert "\n" not in str(caught.value), name
                assert "http" not in str(caught.value), name


def test_a_file_that_is_no_key_is_answered_with_what_makes_one(tmp_path: Path) -> None:
    files = wrong_files(tmp_path)
    for read in (gf.private_key, gf.public_key):
        with pytest.raises(gf.InputError, match="'graphforget keygen'"):
            read(files["noise"])


# -- signatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_signed_certificate_survives_a_file(level: str, tmp_path: Path) -> None:
    signed = gf.signed(certificate(level), KEY)
    (tmp_path / "certificate.json").write_text(json.dumps(signed.to_dict(), indent=2))
    again = Certificate.read(tmp_path / "certificate.json")
    assert again.digest == signed.digest
    assert check_signature(again, KEY.public_key()) == KEY.public_key().public_bytes_raw().hex()
    assert dataclasses.replace(again, signature=None).to_dict() == certificate(level).to_dict()
    assert certificate(level).signature is None


@pytest.mark.parametrize("level", LEVELS)
def test_every_edit_of_a_signed_certificate_is_noticed(level: str) -> None:
    content = gf.signed(certificate(level), KEY).to_dict()
    paths = list(leaves(content))
    assert len(paths) > 40
    written = {field.name for field in dataclasses.fields(Certificate)}
    assert {path[0] for path in paths} == written | {"schema", "audience", "level"}
    unread = []
    for path in paths:
        try:
            changed = Certificate.from_dict(edited(content, path))
        except gf.InputError:
            unread.append(path)
            continue
        with pytest.raises(gf.Mismatch, match="^the (signature|certificate) "):
            check_signature(changed)
        with pytest.raises(gf.Mismatch):
            check_signature(changed, KEY.public_key())
        assert changed.digest != Certificate.from_dict(content).digest
    always = {("schema",), ("audience",), ("level",), ("claim", "kind")}
    possible = {("releases_left",), ("claim", "constants"), ("claim", "delta"), ("claim", "conditions")}
    assert always <= set(unread) <= always | possible  # of nearly all of them it was the signature that told


def test_nothing_can_be_taken_out_of_or_put_into_what_is_signed() -> None:
    content = gf.signed(certificate("conditional"), KEY).to_dict()
    for name in ("model", "objective", "settings", "words", "environment", "algorithms"):
        for other in (content[name] | {"more": 1}, dict(list(content[name].items())[1:])):
            with pytest.raises(gf.Mismatch, match="^the signature does not fit"):
                check_signature(Certificate.from_dict(content | {name: other}))
    for part, name in (("claim", "conditions"), ("words", "not_covered")):
        listed = content[part][name]
        assert len(listed) > 1
        for other in (listed[1:], listed[::-1], [*listed, listed[0]]):
            with pytest.raises(gf.Mismatch, match="^the signature does not fit"):
                check_signature(Certificate.from_dict(content | {part: content[part] | {name: other}}))
    for chosen in ({"method": "idea"}, {"epsilon": 2.0}, content["chosen"] | {"more": 1}):
        assert chosen != content["chosen"]
        with pytest.raises(gf.Mismatch, match="^the signature does not fit"):
            check_signature(Certificate.from_dict(content | {"chosen": chosen}))


def test_nothing_can_be_put_into_the_signature() -> None:
    content = gf.signed(certificate(), KEY).to_dict()
    content["signature"]["approved by"] = "the authority"
    with pytest.raises((gf.Mismatch, gf.InputError)):
        check_signature(Certificate.from_dict(content), KEY.public_key())


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_json_cannot_hold_does_not_pass_for_what_was_signed(value: float) -> None:
    content = gf.signed(certificate(), KEY).to_dict()
    assert content["settings"]["floor"] is None
    with pytest.raises(gf.InputError):
        Certificate.from_dict(content | {"settings": content["settings"] | {"floor": value}})


def test_a_signature_by_another_key_is_noticed() -> None:
    other = Ed25519PrivateKey.generate()
    signed = gf.signed(certificate(), other)
    assert check_signature(signed) == other.public_key().public_bytes_raw().hex()
    with pytest.raises(gf.Mismatch, match="^the certificate was signed with another key$"):
        check_signature(signed, KEY.public_key())
    with pytest.raises(gf.Mismatch, match="^the certificate is not signed$"):
        check_signature(certificate(), KEY.public_key())
    with pytest.raises(gf.Mismatch, match="^the certificate is not signed$"):
        check_signature(certificate())


def test_the_name_of_the_right_key_is_not_enough() -> None:
    signed = gf.signed(certificate(), Ed25519PrivateKey.generate())
    assert signed.signature is not None
    named = dict(signed.signature) | {"public_key": KEY.public_key().public_bytes_raw().hex()}
    with pytest.raises(gf.Mismatch, match="^the signature does not fit"):
        check_signature(dataclasses.replace(signed, signature=named), KEY.public_key())


def test_signing_again_takes_the_first_signature_off() -> None:
    twice = gf.signed(gf.signed(certificate(), Ed25519PrivateKey.generate()), KEY)
    assert twice == gf.signed(certificate(), KEY)
    assert check_signature(twice, KEY.public_key())


@pytest.mark.parametrize(
    "signature",
    [
        *({}, [], "yes", 5, True),
        {"algorithm": "Ed25519"},
        {"algorithm": "Ed25519", "public_key": 5, "value": 5},
        {"algorithm": "Ed25519", "public_key": "no hex", "value": "00"},
        {"algorithm": "Ed25519", "public_key": "00", "value": "00"},
        {"algorithm": "Ed25519", "public_key": "00" * 32, "value": ""},
        {"algorithm": "none", "public_key": "00" * 32, "value": "00" * 64},
    ],
)
def test_what_is_no_signature_does_not_pass_for_one(signature: Any) -> None:
    with pytest.raises((gf.Mismatch, gf.InputError)) as caught:
        check_signature(Certificate.from_dict(document(signature=signature)))
    assert "\n" not in str(caught.value)


# -- the document ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_document_is_json_and_survives_it(level: str) -> None:
    content = document(level)
    assert content["level"] == level
    assert content["schema"] == SCHEMA
    assert content["audience"] == "public"
    assert content["words"] == {
        "statement": certificate(level).claim.statement,
        "definition": MEANING[certificate(level).level],
        "not_covered": list(NOT_COVERED),
    }
    assert set(content["digests"]) == set(DIGESTS)
    assert content["follows"] == START
    again = Certificate.from_dict(json.loads(json.dumps(content, allow_nan=False)))
    assert again.to_dict() == content
    assert again.digest == certificate(level).digest
    assert again.claim == certificate(level).claim
    for name in ("level", "epsilon", "delta", "sigma", "tolerance", "conditions", "statement", "definition"):
        assert getattr(again, name) == getattr(certificate(level), name), name


def test_the_canonical_form_knows_no_order_and_no_spaces() -> None:
    assert canonical({"b": 1, "a": ["ü", 1.0]}) == b'{"a":["\\u00fc",1.0],"b":1}'
    content = document()
    backwards = Certificate.from_dict(dict(reversed(content.items())))
    assert backwards.digest == certificate().digest
    assert backwards.signed_bytes() == certificate().signed_bytes()


@pytest.mark.parametrize("level", LEVELS)
def test_the_digest_follows_every_field(level: str) -> None:
    result = {certificate(level).digest}
    for field in dataclasses.fields(Certificate):
        old = getattr(certificate(level), field.name)
        new: Any = 0.125 if not isinstance(old, str) else old + "!"
        if field.name == "claim":
            new = dataclasses.replace(old, sigma=7.0)
        result.add(dataclasses.replace(certificate(level), **{field.name: new}).digest)
    assert len(result) == 1 + len(dataclasses.fields(Certificate))


@pytest.mark.parametrize("level", LEVELS)
def test_a_missing_or_unknown_field_is_named(level: str) -> None:
    for name in document(level):
        rest = {field: value for field, value in document(level).items() if field != name}
        message = {
            "schema": f"^this is no certificate of schema {SCHEMA}$",
            **dict.fromkeys(("level", "audience"), "^the certificate's level is not that of its claim, or it is not a"),
        }.get(name, f"^the certificate's field '{name}' is missing$")
        with pytest.raises(gf.InputError, match=message):
            Certificate.from_dict(rest)
    with pytest.raises(gf.InputError, match=r"^the certificate's field 'colour' is unknown$"):
        Certificate.from_dict(document(level, colour="red"))


def test_a_certificate_of_another_version_is_told_as_such_and_accused_of_nothing(tmp_path: Path) -> None:
    message = "^the certificate has schema graphforget.certificate/1, and this version .* reads .*: verify it with the"
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps({"schema": "graphforget.certificate/1"}))
    with pytest.raises(OtherVersion, match=message):
        Certificate.from_dict({"schema": "graphforget.certificate/1"})
    with pytest.raises(OtherVersion, match=message):
        Certificate.read(path)


NOT_CERTIFICATES: list[Any] = [
    None,
    [],
    "certificate",
    5,
    {},
    {"schema": "other/1"},
    {"schema": "graphforget.certificate/1\nx"},
]


@pytest.mark.parametrize("content", [*NOT_CERTIFICATES, {"schema": {"graphforget.certificate/1": 1}}])
def test_what_is_no_certificate_is_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=f"^this is no certificate of schema {SCHEMA}$"):
        Certificate.from_dict(content)
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(gf.InputError, match=f"^{tmp_path / 'c.json'} cannot be read as a certificate: ") as caught:
        Certificate.read(tmp_path / "c.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 10])
def test_a_file_that_is_no_json_is_told_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(content)
    for place in (tmp_path / "c.json", tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(gf.InputError, match=f"^{place} cannot be read as a certificate: ") as caught:
            Certificate.read(place)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("level", ["perfect", "exact", "Certified", "conditional", "", None, 1, ["certified"]])
def test_a_level_that_is_not_that_of_the_claim_is_refused(level: Any) -> None:
    with pytest.raises(gf.InputError, match="^the certificate's level is not that of its claim"):
        Certificate.from_dict(document() | {"level": level})


def test_a_document_for_another_audience_is_no_certificate() -> None:
    with pytest.raises(gf.InputError, match="it is not a public document$"):
        Certificate.from_dict(document() | {"audience": "private"})


@pytest.mark.parametrize("value", [-1, -1e-300, NAN, -INF, "1", True, [1.0], {"a": 1}])
@pytest.mark.parametrize("name", PASSED)
def test_a_number_that_is_none_is_refused(name: str, value: Any) -> None:
    content = with_claim(**{name: value})
    with pytest.raises(gf.InputError, match=f"^the claim's (number of )?{name} is .*, a (whole )?number .* is needed$"):
        read_claim(content["claim"])
    with pytest.raises(gf.InputError):
        Certificate.from_dict(content)
    good: dict[str, Any] = {name: 0.5 if name == "delta" else 2}
    assert getattr(Certificate.from_dict(with_claim(**good)).claim, name) == good[name]


@pytest.mark.parametrize("value", [0, 1, None, "true", [True]])
@pytest.mark.parametrize("name", ["around_centre", "refuted"])
def test_what_is_neither_true_nor_false_is_refused(name: str, value: Any) -> None:
    with pytest.raises(gf.InputError, match=f"^the claim's {name} is .*, true or false is needed$"):
        Certificate.from_dict(with_claim("empirical", **{name: value}))


@pytest.mark.parametrize("name", MEASURED)
def test_nothing_that_was_measured_has_a_place_in_a_certificate(name: str) -> None:
    """It depends on what was deleted."""
    for level in LEVELS:
        assert name not in json.dumps(document(level))
        with pytest.raises(gf.InputError, match=f"^the certificate's field '{name}' is unknown$"):
            Certificate.from_dict(document(level, **{name: 0.0}))
        with pytest.raises(gf.InputError, match=f"^the claim's field '{name}' is unknown$"):
            Certificate.from_dict(with_claim(level, **{name: 0.0}))


CLAIM = {"kind": "exact/1", "sigma": 0.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"digests": None},
        {"digests": {}},
        {"digests": {"graph": "00"}},
        {"digests": dict.fromkeys([*DIGESTS, "more"], "00")},
        {"digests": dict.fromkeys(DIGESTS, 5)},
        *(
            {name: bad}
            for name in ("settings", "chosen", "model", "objective", "words")
            for bad in any_values(None, [], 5)
        ),
        *({name: bad} for name in ("algorithms", "environment") for bad in any_values(None, [], "text")),
        *({name: bad} for name in ("id", "made", "method", "follows") for bad in (None, 5, ["text"])),
        *({"training_nodes": bad} for bad in (None, 1.5, "1", True)),
        *({"releases_left": bad} for bad in (1.5, "1", True)),
        *(
            {"claim": bad}
            for bad in any_values(None, [], "exact/1", {}, {"kind": None}, {"kind": "exact/2", "sigma": 0.0})
        ),
        *({"claim": CLAIM | {"more": 1}}, {"claim": {"kind": "exact/1"}}, {"claim": CLAIM | {"sigma": "much"}}),
    ],
)
def test_parts_that_cannot_be_read_are_told_in_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError) as caught:
        Certificate.from_dict(document("exact", **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        *({"conditions": bad} for bad in (None, 5, "convexity", [5], [None], [{"name": "it holds"}], {"it": "holds"})),
        *(
            {"constants": bad}
            for bad in any_values(None, 5, [], {"colour": 1.0}, {"lipschitz": -1.0}, {"lipschitz": "much"})
        ),
    ],
)
def test_conditions_and_constants_that_cannot_be_read_are_told_in_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match="^(the claim|there is no constant|lipschitz is)") as caught:
        Certificate.from_dict(with_claim("conditional", **changes))
    assert "\n" not in str(caught.value)


# -- the entries of a ledger -----------------------------------------------------------------------------------------


def signed_entry(folder: Path, key: Ed25519PrivateKey | None) -> Entry:
    with Ledger(folder / "ledger.sqlite") as ledger:
        return ledger.append(
            time="2026-01-31T12:00:00Z",
            request_id="request",
            request_digest="ab" * 32,
            certificate_digest="cd" * 32,
            level="certified",
            ratio=0.1,
            answer="{}",
            sign=None if key is None else entry_signer(key),
        )


def test_an_entry_is_signed_by_whoever_signed_its_certificate(tmp_path: Path) -> None:
    entry, certificate_ = signed_entry(tmp_path, KEY), gf.signed(certificate(), KEY)
    check_entry_signature(entry, certificate_)
    check_entry_signature(entry, None)  # a refused request has no certificate
    message = "^entry 1 of the ledger is not signed by whoever signed its certificate$"
    for other in (certificate(), gf.signed(certificate(), Ed25519PrivateKey.generate())):
        with pytest.raises(gf.Mismatch, match=message):
            check_entry_signature(entry, other)
    bare = dataclasses.replace(entry, signer=None, signature=None)
    check_entry_signature(bare, certificate())
    with pytest.raises(gf.Mismatch, match=message):
        check_entry_signature(bare, certificate_)


@pytest.mark.parametrize(
    "change",
    [
        *({"signature": bad} for bad in (None, "", "00", "no hex", "00" * 64)),
        *({"signer": bad} for bad in ("", "00", "no hex", "00" * 32)),
        {"hash": "0" * 64},
    ],
)
def test_a_signature_of_an_entry_that_does_not_fit_is_noticed(change: dict[str, Any], tmp_path: Path) -> None:
    entry = dataclasses.replace(signed_entry(tmp_path, KEY), **change)
    with pytest.raises(gf.Mismatch, match="^the signature of entry 1 of the ledger does not fit$"):
        check_entry_signature(entry, None)


def test_a_signature_of_an_entry_passes_for_no_other_and_for_no_certificate(tmp_path: Path) -> None:
    entry = signed_entry(tmp_path, KEY)
    other = dataclasses.replace(entry, hash="1" * 64)
    with pytest.raises(gf.Mismatch, match="does not fit"):
        check_entry_signature(other, None)
    assert entry.signature != KEY.sign(entry.hash.encode()).hex()  # what is signed says that it is an entry's


# -- what a claim says -----------------------------------------------------------------------------------------------

numbers = st.floats(1e-12, 1e6, allow_nan=False)


@given(numbers)
def test_rounding_up_never_rounds_down_and_never_far(value: float) -> None:
    rounded = rounded_up(value)
    assert value <= rounded <= value * 1.1 * (1 + 1e-12)
    assert float(f"{rounded:.1e}") == rounded  # two digits


def test_nothing_is_rounded_up_to_nothing() -> None:
    assert rounded_up(0.0) == 0.0
    assert [rounded_up(value) for value in (0.00511, 0.99, 0.991, 0.999, 12.01)] == [0.0052, 0.99, 1.0, 1.0, 13.0]


def test_what_was_rounded_up_stays_as_it_is() -> None:
    """`verify` builds the claim anew from its own distance, so an honest certificate can fail."""
    twice = [
        (m, e) for e in range(-12, 5) for m in range(10, 100) if rounded_up(float(f"{m}e{e}")) != float(f"{m}e{e}")
    ]
    assert twice == []


def noised(sigma: float, *, releases: int = 1) -> gf.Trained:
    """A model with this noise, of which a claim looks at nothing but the recipe and the loss."""
    trained = small_model()
    return dataclasses.replace(
        trained, recipe=dataclasses.replace(trained.recipe, sigma=sigma, mu=1.0, releases=releases)
    )


@functools.cache
def small_model() -> gf.Trained:
    return gf.train(random_graph(3, nodes=40, edges=60), "sgc")


def measured(radius: float) -> Residual:
    return Residual(torch.zeros(1), torch.tensor([2 * radius], dtype=torch.float64), rounding=0.0, mu=1.0)


epsilons, deltas, sigmas = st.floats(1e-3, 50), st.floats(1e-12, 1e-2), st.floats(1e-6, 1e3)


@pytest.mark.slow
@given(share=st.floats(0, 1), epsilon=epsilons, delta=deltas, sigma=sigmas, releases=st.integers(1, 100))
def test_a_certified_distance_is_never_over_the_tolerance(
    share: float, epsilon: float, delta: float, sigma: float, releases: int
) -> None:
    allowed = tolerance(sigma=sigma, epsilon=epsilon, delta=delta, releases=releases)
    there = measured(min(share * allowed, allowed))
    claim = ResidualBall.issue(there, noised(sigma, releases=releases), epsilon=epsilon, delta=delta)
    assert claim.level == "certified"
    assert claim.tolerance == allowed
    assert claim.ratio == allowed / sigma
    assert (claim.epsilon, claim.delta, claim.sigma, claim.releases) == (epsilon, delta, sigma, releases)
    private = claim.measurements(there)
    assert there.radius <= private["distance"] <= allowed
    assert private["tolerance"] == allowed
    assert 0 <= private["epsilon_measured"] <= epsilon
    assert "distance" not in claim.to_dict()


@pytest.mark.slow
@given(over=st.floats(1e-9, 10), epsilon=epsilons, delta=deltas, sigma=sigmas)
def test_a_distance_over_the_tolerance_is_not_certified(
    over: float, epsilon: float, delta: float, sigma: float
) -> None:
    allowed = tolerance(sigma=sigma, epsilon=epsilon, delta=delta)
    for distance in (allowed * (1 + over), math.nextafter(allowed, INF), NAN, INF):
        with pytest.raises(gf.Refused, match="over the tolerance"):
            ResidualBall.issue(measured(distance), noised(sigma), epsilon=epsilon, delta=delta)


def test_the_claim_of_a_release_does_not_depend_on_what_was_measured() -> None:
    claims = [ResidualBall.issue(measured(r), noised(0.3), epsilon=1.0, delta=1e-5) for r in (0.0, 1e-9, 1e-3, 0.05)]
    assert all(claim == claims[0] for claim in claims)


@pytest.mark.parametrize("distance", [0.0, 1e-3])
def test_without_noise_nothing_is_certified(distance: float) -> None:
    with pytest.raises((gf.Refused, gf.InputError)):
        ResidualBall.issue(measured(distance), noised(0.0), epsilon=1.0, delta=1e-5)


def test_a_delta_for_one_in_a_hundred_certifies_nothing() -> None:
    assert ResidualBall.issue(measured(0.0), noised(0.3), epsilon=1.0, delta=1e-2).level == "certified"
    with pytest.raises(gf.Refused, match="over 0.01 nothing is certified"):
        ResidualBall.issue(measured(0.0), noised(0.3), epsilon=1.0, delta=1.1e-2)
