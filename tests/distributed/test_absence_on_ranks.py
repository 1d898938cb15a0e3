"""Proofs of absence, and `verify --before`, of runs whose graph is in parts: real processes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf
from distributed_cases import ENVIRONMENT, on_ranks, sharded

PROGRAM = Path(__file__).parents[1] / "distributed_absence_program.py"
RANKS = 3
KINDS = ("numbers", "subjects")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two graphs in parts. Without ids, some numbers lie in the last subtree of a rank, and some beyond all."""
    place = tmp_path_factory.mktemp("absence")
    graph = gf.synthetic(nodes=300, edges=1200, columns=5, classes=3, train=0.7)
    named = dataclasses.replace(graph, subject_ids=tuple(f"person-{number}" for number in range(300)))
    given: dict[str, dict[str, Any]] = {
        "numbers": {"requests": [[17, 150], [299]], "never": [300, 303, 305, 10**12], "present": 42},
        "subjects": {"requests": [["person-17"], ["person-150"]], "never": ["nobody", "17"], "present": "person-42"},
    }
    for kind, one in zip(KINDS, (graph, named), strict=True):
        (place / kind).mkdir()
        sharded(one, place / kind, RANKS)[RANKS].rename(place / kind / "shards")
        (place / kind / "given.json").write_text(json.dumps(given[kind]))
    return place


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    words += [str(PROGRAM), str(folder), *KINDS]
    done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_absence_is_shown_by_certificates_of_ranks(results: dict[str, Any], folder: Path, kind: str) -> None:
    certificates = [gf.Certificate.read(folder / kind / f"run-{number}" / "certificate.json") for number in (0, 1)]
    for certificate, texts in zip(certificates, results[kind]["proofs"], strict=True):
        assert len(texts) >= 3
        for text in texts:
            proof = gf.AbsenceProof.from_dict(json.loads(text))
            gf.verify_absence(proof, certificate=certificate)
            other = "42" if kind == "numbers" else "person-42"
            with pytest.raises(gf.Mismatch):
                gf.verify_absence(dataclasses.replace(proof, subject=other), certificate=certificate)
    roots = [certificate.digests["slots"] for certificate in certificates]
    assert roots[0] != roots[1]
    assert results[kind]["refused"] is True


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_verify_checks_the_trees_and_the_noise_before(results: dict[str, Any], kind: str) -> None:
    assert "and nobody else" in results[kind]["checks"]["proofs of absence"]
    assert "not correlated" in results[kind]["checks"]["fresh noise"]


@pytest.mark.slow
def test_the_command_proves_absence_or_refuses(results: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    run = folder / "numbers" / "run-1"
    done = on_ranks(RANKS, "prove-absence", run, "--subject", "17", "--out", tmp_path / "proof.json", "--json")
    assert done.returncode == 0, done.stderr
    proof = gf.AbsenceProof.read(tmp_path / "proof.json")
    gf.verify_absence(proof, certificate=gf.Certificate.read(run / "certificate.json"))
    refused = on_ranks(RANKS, "prove-absence", run, "--subject", "42", "--out", tmp_path / "other.json")
    assert refused.returncode == 3
    assert not (tmp_path / "other.json").exists()
