"""Attestations: other tools verify them, `verify` reads them, and no change goes unnoticed."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

import graphforget as gf
from cases import Run, RunJson, random_graph
from graphforget.certificates import attestation as attestations
from graphforget.verification.attestation import verify_attestation_file

SCHEMA = Path(__file__).parents[2] / "docs" / "attestation.schema.json"
SEED = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that has answered a request, signed with `SEED`."""
    folder, graph = tmp_path_factory.mktemp("attested") / "run", random_graph(3, nodes=20, edges=30)
    gf.save_run(folder, gf.train(graph, "sgc"), graph)
    gf.answer(folder, gf.Request(nodes=[4]), request_id="first", key=SEED)
    return folder


@pytest.fixture
def attested(answered: Path) -> dict[str, Any]:
    released = hashlib.sha256((answered / "released.safetensors").read_bytes()).hexdigest()
    return attestations.attestation(gf.Certificate.read(answered / "certificate.json"), SEED, released=released)


def payload(content: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(base64.b64decode(content["payload"])))


def test_the_signature_is_that_of_a_known_vector() -> None:
    """Computed from the specification of DSSE by another program."""
    made = attestations.envelope(b"{}", SEED)
    assert attestations.pre_authentication_encoding(b"{}") == b"DSSEv1 28 application/vnd.in-toto+json 2 {}"
    assert made["signatures"] == [
        {
            "keyid": "63d00ee3cf4f5c61ad94efa696c68f13b608fe56ecea13fb144a6fd18e9235b9",
            "sig": "dWG98CPWh3lAzt/mxzJ7Nc6Avgf2tjap4msM5gNmMV9Lpu+TWkZMk3lP/u6Su450zcqkLQw21MTZfwU07XgjCw==",
        }
    ]


def test_securesystemslib_verifies_it(attested: dict[str, Any]) -> None:
    key = SSlibKey.from_crypto(SEED.public_key())
    assert Envelope.from_dict(json.loads(json.dumps(attested))).verify([key], 1)
    other = SSlibKey.from_crypto(Ed25519PrivateKey.generate().public_key())
    with pytest.raises(VerificationError):
        Envelope.from_dict(json.loads(json.dumps(attested))).verify([other], 1)


def test_the_statement_is_of_the_documented_schema(attested: dict[str, Any]) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(payload(attested), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(payload(attested) | {"predicateType": "another"}, schema)


def test_the_command_verify_reads_it(
    attested: dict[str, Any], answered: Path, tmp_path: Path, run_json: RunJson
) -> None:
    place, key = tmp_path / "attestation.json", tmp_path / "key"
    place.write_text(json.dumps(attested))
    public = SEED.public_key().public_bytes_raw()
    pem = SEED.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    key.write_bytes(pem)
    result = run_json("verify", str(place), "--key", str(key), "--released", str(answered / "released.safetensors"))
    assert result["ok"]
    assert public.hex()[:16] in result["checks"]["envelope"]
    assert "released weights" in result["checks"]


@pytest.mark.parametrize(
    "option", [("--head", "0" * 64), ("--data", "patients"), ("--before", "run"), ("--replay",), ("--module", "a:B")]
)
def test_the_command_verify_refuses_what_it_would_not_check(
    option: tuple[str, ...], attested: dict[str, Any], tmp_path: Path, run: Run
) -> None:
    place = tmp_path / "attestation.json"
    place.write_text(json.dumps(attested))
    ran = run("verify", str(place), *option)
    assert (ran.code, ran.stdout) == (2, "")
    assert f"{option[0]} needs a run directory" in ran.stderr


def changed_statement(attested: dict[str, Any]) -> dict[str, Any]:
    statement = payload(attested)
    statement["predicate"]["certificate"]["training_nodes"] += 1
    return attested | {"payload": base64.b64encode(json.dumps(statement).encode()).decode()}


def other_signature(attested: dict[str, Any]) -> dict[str, Any]:
    made = attestations.envelope(base64.b64decode(attested["payload"]), Ed25519PrivateKey.generate())
    return attested | {"signatures": made["signatures"]}


def other_subject(attested: dict[str, Any]) -> dict[str, Any]:
    """A statement about other weights, signed with the right key: the certificate is about these."""
    statement = payload(attested)
    statement["subject"][0]["digest"]["graphforget-weights"] = "0" * 64
    return attestations.envelope(json.dumps(statement).encode(), SEED)


@pytest.mark.parametrize("change", [changed_statement, other_signature, other_subject])
def test_a_changed_attestation_does_not_hold(change: Any, attested: dict[str, Any]) -> None:
    attestations.verify_attestation(attested, key=SEED.public_key())
    with pytest.raises(gf.Mismatch):
        attestations.verify_attestation(change(attested), key=SEED.public_key())


@pytest.mark.parametrize("broken", ["", "{}", '{"payloadType": "application/vnd.in-toto+json"}', "[1]"])
def test_what_is_no_attestation_is_refused(broken: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(broken)
    with pytest.raises((gf.InputError, gf.Mismatch)):
        verify_attestation_file(tmp_path / "file.json")


def test_another_file_than_the_attested_one_does_not_hold(
    attested: dict[str, Any], answered: Path, tmp_path: Path
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(attested))
    with pytest.raises(gf.Mismatch, match="released weights"):
        verify_attestation_file(tmp_path / "file.json", released=answered / "certificate.json")
