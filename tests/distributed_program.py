"""What the agreement test runs on every rank: training, requests and a verification of several models, in one launch.

It is started as `python -m torch.distributed.run ... tests/distributed_program.py SHARDS FOLDER REQUEST...`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.cli.on_ranks import end_rank, ranks, run_on_ranks
from graphforget.runs.answering import Answer
from graphforget.runs.on_ranks import answer_on_ranks, counters, plan_on_ranks, train_on_ranks, verify_on_ranks


def described(answer: Answer) -> dict[str, Any]:
    """What tests compare of an answer: weights, the ball that holds the optimum, the footprint."""
    outcome = answer.outcome
    assert outcome is not None
    return {
        "digest": outcome.graph.digest,
        "theta": outcome.trained.theta.tolist(),
        "centre": outcome.centre.tolist(),
        "distance": outcome.measured["distance"],
        "footprint": answer.summary["private"]["footprint"],
    }


def program() -> int:
    """Prints one JSON object with everything that tests compare."""
    shards, folder, *files = map(Path, sys.argv[1:])
    request, second = map(gf.Request.from_file, files)
    together = ranks()
    assert together is not None
    results = {}
    for model in ("sgc", "sign"):
        run = folder / model
        trained, graph = train_on_ranks(together, shards, model, out=run)
        score = trained.utility(graph)
        planned, _ = plan_on_ranks(together, run, [request])
        (answer,) = answer_on_ranks(together, run, [request], request_ids=["first"])
        (again,) = answer_on_ranks(together, run, [request], request_ids=["first"])
        (later,) = answer_on_ranks(together, run, [second], request_ids=["second"])
        outcome = answer.outcome
        assert outcome is not None
        results[model] = {
            "digest": graph.digest,
            "theta": trained.theta.tolist(),
            "score": score,
            "plan": planned.to_dict(),
            "after": described(answer),
            "later": described(later),
            "repeated": again.repeated,
            "certificate": outcome.certificate.to_dict(),
            "checks": len(verify_on_ranks(together, run).checks),
        }
    print(json.dumps(results | {"counters": counters(together)}))
    return 0


if __name__ == "__main__":
    end_rank(run_on_ranks(program))
