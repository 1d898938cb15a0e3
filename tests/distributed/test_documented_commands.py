"""The commands of docs/scale.md, as they stand there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf
from distributed_cases import ENVIRONMENT
from document_blocks import ROOT, SHELL, Block, blocks_of

BLOCKS = [block for block in blocks_of(ROOT / "docs" / "scale.md") if block.language in SHELL and not block.measures]


def run_block(block: Block, place: Path) -> list[subprocess.CompletedProcess[str]]:
    """Runs each command of a block in a folder, with the package of these tests."""
    names: dict[str, list[str]] = {
        "graphforget": [sys.executable, "-m", "graphforget"],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    }
    given: dict[str, Any] = {"cwd": place, "env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 300}
    calls = [[*names[words[0]], *words[1:]] for words in block.commands]
    return [subprocess.run(call, check=False, **given) for call in calls]


def test_every_block_starts_processes_that_are_tested_here() -> None:
    first, second = BLOCKS
    assert [words[0] for words in first.commands] == ["graphforget"] * 6
    assert [words[0] for words in second.commands] == ["torchrun"]
    shown = [words[words.index("--") + 1] for words in first.commands[1:]]
    assert shown == ["train", "plan", "unlearn", "verify", "prove-absence"]


@pytest.mark.long
def test_the_commands_work_one_after_the_other(tmp_path: Path) -> None:
    """A CSV folder with numbers as ids, a key and a request that deletes node 17, of which the last command speaks."""
    folder = tmp_path / "records"
    folder.mkdir()
    nodes = [f"{place},{place % 7},{place % 5},{'x' if place % 3 else 'y'}" for place in range(200)]
    (folder / "nodes.csv").write_text("\n".join(["id,a,b,label", *nodes, ""]))
    pairs = [f"{place},{(7 * place + 1) % 200}" for place in range(200)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs, ""]))
    (tmp_path / "keys").mkdir()
    gf.make_keys(tmp_path / "keys" / "privacy")
    (tmp_path / "request.json").write_text(json.dumps({"nodes": ["17"]}))
    for ran in run_block(BLOCKS[0], tmp_path):
        assert ran.returncode == 0, (ran.args, ran.stderr)
    assert gf.Certificate.read(tmp_path / "runs/records/certificate.json").level == "certified"
    assert gf.verify_absence(
        gf.AbsenceProof.read(tmp_path / "proof.json"), key=gf.public_key(tmp_path / "keys/privacy.pub")
    )
    shutil.rmtree(tmp_path / "runs")
    for ran in run_block(BLOCKS[1], tmp_path):
        assert ran.returncode == 0, (ran.args, ran.stderr)
    assert (tmp_path / "runs/records/run.json").exists()
