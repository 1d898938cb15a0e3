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
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from graphforget.certificates.claim import NOT_COVERED, certified, rounded_up, tolerance
from hypothesis import given
from hypothesis import strategies as st

import graphforget as gf
from cases import idea, random_graph
from graphforget.certificates.document import DIGESTS, SCHEMA, Certificate, canonical
from graphforget.certificates.ledger import START
from graphforget.certificates.levels import LEVELS, MEANING
from graphforget.certificates.signing import check_signature
from graphforget.errors import OtherVersion

KEY = Ed25519PrivateKey.generate()
PASSED = ("epsilon", "delta", "sigma", "distance", "tolerance", "epsilon_measured")
NAN, INF = float("nan"), float("inf")


def certificate(level: str = "certified") -> Certificate:
    return made(level)


@functools.cache
def made(level: str) -> Certificate:
    graph = random_graph(3, nodes=40, edges=60)
    trained, request = gf.train(graph, "sgc"), gf.Request(nodes=[4])
    if level == "exact":
        return gf.unlearn(trained, graph, request, method="retrain").certificate
    if level == "empirical":
        return gf.unlearn(trained, graph, request, method="retrain", start="continued").certificate
    found = idea(trained, graph, request) if level == "conditional" else gf.unlearn(trained, graph, request)
    return found.certificate


def document(level: str = "certified", **changes: Any) -> dict[str, Any]:
    return certificate(level).to_dict() | changes


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
    elif isinstance(old, int | float):
        new = old + 1 if path[-1] == "training_nodes" else old * (1 + 1e-15) + 1e-300
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
    assert {path[0] for path in paths} == {field.name for field in dataclasses.fields(Certificate)} | {"schema"}
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
    assert ("schema",) in unread
    assert len(unread) < 5, unread  # nearly all of them it was the signature that told


def test_nothing_can_be_taken_out_of_or_put_into_what_is_signed() -> None:
    content = gf.signed(certificate("conditional"), KEY).to_dict()
    for name in ("model", "objective", "versions"):
        for other in (content[name] | {"more": 1}, dict(list(content[name].items())[1:])):
            with pytest.raises(gf.Mismatch, match="^the signature does not fit"):
                check_signature(Certificate.from_dict(content | {name: other}))
    for name in ("conditions", "not_covered", "refuted"):
        assert len(content[name]) > 1
        for other in (content[name][1:], content[name][::-1], [*content[name], content[name][0]]):
            with pytest.raises(gf.Mismatch, match="^the signature does not fit"):
                check_signature(Certificate.from_dict(content | {name: other}))


def test_nothing_can_be_put_into_the_signature() -> None:
    content = gf.signed(certificate(), KEY).to_dict()
    content["signature"]["approved by"] = "the authority"
    with pytest.raises((gf.Mismatch, gf.InputError)):
        check_signature(Certificate.from_dict(content), KEY.public_key())


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_json_cannot_hold_does_not_pass_for_what_was_signed(value: float) -> None:
    content = gf.signed(certificate(), KEY).to_dict()
    assert content["epsilon_under_constants"] is None
    with pytest.raises((gf.Mismatch, gf.InputError)):
        check_signature(Certificate.from_dict(content | {"epsilon_under_constants": value}), KEY.public_key())


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
    assert content["definition"] == MEANING[certificate(level).level]
    assert content["not_covered"] == list(NOT_COVERED)
    assert set(content["digests"]) == set(DIGESTS)
    assert content["follows"] == START
    again = Certificate.from_dict(json.loads(json.dumps(content, allow_nan=False)))
    assert again.to_dict() == content
    assert again.digest == certificate(level).digest
    assert again.conditions == certificate(level).conditions
    assert again.constants == certificate(level).constants


def test_the_canonical_form_knows_no_order_and_no_spaces() -> None:
    assert canonical({"b": 1, "a": ["ü", 1.0]}) == b'{"a":["\\u00fc",1.0],"b":1}'
    content = document()
    backwards = Certificate.from_dict(dict(reversed(content.items())))
    assert backwards.digest == certificate().digest
    assert backwards.signed_bytes() == certificate().signed_bytes()


@pytest.mark.parametrize("level", LEVELS)
def test_the_digest_follows_every_field(level: str) -> None:
    found = {certificate(level).digest}
    for field in dataclasses.fields(Certificate):
        old = getattr(certificate(level), field.name)
        new: Any = 0.125 if not isinstance(old, str) else old + "!"
        if field.name in ("constants",):
            new = gf.Constants(loss_bound=7.0)
        found.add(dataclasses.replace(certificate(level), **{field.name: new}).digest)
    assert len(found) == 1 + len(dataclasses.fields(Certificate))


@pytest.mark.parametrize("level", LEVELS)
def test_a_missing_or_unknown_field_is_named(level: str) -> None:
    for name in document(level):
        rest = {field: value for field, value in document(level).items() if field != name}
        told = f"^this is no certificate of schema {SCHEMA}$" if name == "schema" else f"field '{name}' is missing$"
        with pytest.raises(gf.InputError, match=told):
            Certificate.from_dict(rest)
    with pytest.raises(gf.InputError, match=r"^the certificate's field 'colour' is unknown$"):
        Certificate.from_dict(document(level, colour="red"))


def test_a_certificate_of_another_version_is_told_as_such_and_accused_of_nothing(tmp_path: Path) -> None:
    told = "^the certificate has schema graphforget.certificate/1, and this version .* reads .*: verify it with the"
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps({"schema": "graphforget.certificate/1"}))
    with pytest.raises(OtherVersion, match=told):
        Certificate.from_dict({"schema": "graphforget.certificate/1"})
    with pytest.raises(OtherVersion, match=told):
        Certificate.read(path)


NOT_CERTIFICATES = [None, [], "certificate", 5, {}, {"schema": "other/1"}, {"schema": "graphforget.certificate/1\nx"}]


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


@pytest.mark.parametrize("level", ["perfect", "Exact", "", None, 1, ["exact"]])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    with pytest.raises(gf.InputError, match="^the certificate's level .* is none of exact, certified"):
        Certificate.from_dict(document() | {"level": level})


@pytest.mark.parametrize("value", [-1, -1e-300, NAN, -INF, "1", True, [1.0], {"a": 1}])
@pytest.mark.parametrize("name", PASSED)
def test_a_number_that_is_none_is_refused(name: str, value: Any) -> None:
    with pytest.raises(gf.InputError, match=f"^the certificate's {name} is .*, a number from 0 is needed$"):
        Certificate.from_dict(document(**{name: value}))
    assert getattr(Certificate.from_dict(document(**{name: 0})), name) == 0


@pytest.mark.parametrize("value", [0, 1, None, "true", [True]])
@pytest.mark.parametrize("name", ["changed", "centred"])
def test_what_is_neither_true_nor_false_is_refused(name: str, value: Any) -> None:
    with pytest.raises(gf.InputError, match=f"^the certificate's {name} is .*, true or false is needed$"):
        Certificate.from_dict(document(**{name: value}))


@pytest.mark.parametrize("name", ["epsilon_under_constants", "sigma_needed", "sigma_by_paper"])
def test_numbers_that_are_remarks_are_numbers_too(name: str) -> None:
    with pytest.raises(gf.InputError):
        Certificate.from_dict(document(**{name: -1.0}))


@pytest.mark.parametrize(
    "changes",
    [
        {"digests": None},
        {"digests": {}},
        {"digests": {"graph": "00"}},
        {"digests": dict.fromkeys([*DIGESTS, "more"], "00")},
        {"conditions": None},
        {"conditions": [5]},
        {"conditions": [{"name": "it holds"}]},
        {"conditions": [{"colour": "red"}]},
        {"constants": 5},
        {"constants": {"colour": 1.0}},
        {"constants": {"lipschitz": -1.0}},
        {"constants": {"lipschitz": "much"}},
        {"refuted": None},
        {"not_covered": 5},
    ],
)
def test_parts_that_cannot_be_read_are_told_in_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError) as caught:
        Certificate.from_dict(document(**changes))
    assert "\n" not in str(caught.value)


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


@given(share=st.floats(0, 1), epsilon=st.floats(1e-3, 50), delta=st.floats(1e-12, 0.4), sigma=st.floats(1e-6, 1e3))
def test_a_certified_distance_is_never_over_the_tolerance(
    share: float, epsilon: float, delta: float, sigma: float
) -> None:
    allowed = tolerance(sigma=sigma, epsilon=epsilon, delta=delta)
    claim = certified(distance=min(share * allowed, allowed), epsilon=epsilon, delta=delta, sigma=sigma)
    assert claim.level == "certified"
    assert claim.tolerance == allowed
    assert claim.distance is not None
    assert share * allowed <= claim.distance * (1 + 1e-15)
    assert claim.distance <= allowed
    assert claim.epsilon == epsilon
    assert claim.epsilon_measured is not None
    assert 0 <= claim.epsilon_measured <= epsilon


@given(over=st.floats(1e-9, 10), epsilon=st.floats(1e-3, 50), delta=st.floats(1e-12, 0.4), sigma=st.floats(1e-6, 1e3))
def test_a_distance_over_the_tolerance_is_not_certified(
    over: float, epsilon: float, delta: float, sigma: float
) -> None:
    allowed = tolerance(sigma=sigma, epsilon=epsilon, delta=delta)
    for distance in (allowed * (1 + over), math.nextafter(allowed, INF), NAN, INF, -1e-9):
        with pytest.raises(gf.InputError, match="over the tolerance .*, so nothing is certified"):
            certified(distance=distance, epsilon=epsilon, delta=delta, sigma=sigma)


def test_without_noise_nothing_is_certified() -> None:
    with pytest.raises(gf.InputError, match="without noise nothing is certified"):
        certified(distance=1e-3, epsilon=1.0, delta=1e-5, sigma=0.0)


def test_not_even_a_distance_of_nothing_is_certified_without_noise() -> None:
    with pytest.raises(gf.InputError):
        certified(distance=0.0, epsilon=1.0, delta=1e-5, sigma=0.0)
