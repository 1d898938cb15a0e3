"""What the test of absence runs on every rank, for a graph with subject ids and one without, in one launch.

It is started as `python -m torch.distributed.run ... tests/distributed_absence_program.py FOLDER KIND...`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import graphforget as gf
from graphforget.cli.on_ranks import end_rank, ranks, run_on_ranks
from graphforget.runs.on_ranks import answer_on_ranks, prove_absence_on_ranks, train_on_ranks, verify_on_ranks


def program() -> int:
    """Two requests for each graph. Prints the proofs of those who are not there, and the checks of `verify`."""
    folder, *kinds = sys.argv[1:]
    together = ranks()
    assert together is not None
    results = {}
    for kind in kinds:
        place = Path(folder) / kind
        given = json.loads((place / "given.json").read_text())
        train_on_ranks(together, place / "shards", "sgc", out=place / "run")
        proofs, before = [], place / "run"
        for number, names in enumerate(given["requests"]):
            out = place / f"run-{number}"
            answer_on_ranks(together, before, [gf.Request(nodes=names)], out=out)
            absent = [*given["never"], *(one for some in given["requests"][: number + 1] for one in some)]
            proofs.append([prove_absence_on_ranks(together, out, str(one)).to_json() for one in absent])
            before = out
        try:
            prove_absence_on_ranks(together, before, str(given["present"]))
            refused = False
        except gf.Refused:
            refused = True
        verified = verify_on_ranks(together, before, before=place / "run-0")
        checks = {check.name: check.result for check in verified.checks}
        results[kind] = {"proofs": proofs, "refused": refused, "checks": checks}
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    end_rank(run_on_ranks(program))
