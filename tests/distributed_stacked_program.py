"""What the test of stacked models runs on every rank, in one launch: for each model a training, and some requests.

It is started as `python -m torch.distributed.run ... FILE SHARDS FOLDER MODELS REQUEST...`. MODELS is JSON and has the
number of requests for each model. Models that get all requests are planned, repeated and verified too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.cli.on_ranks import end_rank, ranks, run_on_ranks
from graphforget.distributed.ranks import Ranks
from graphforget.runs.on_ranks import (
    answer_on_ranks,
    counters,
    plan_on_ranks,
    rehearse_on_ranks,
    train_on_ranks,
    verify_on_ranks,
)
from graphforget.training.state import digest_of
from graphforget.training.trained import Trained

EPOCHS = 6


def encoders_of(trained: Trained) -> dict[str, str]:
    """The digest of every tensor of every encoder, and of their scales."""
    return {name: digest_of(value) for name, value in trained.released_state.items()}


def step_of(outcome: gf.Outcome) -> dict[str, Any]:
    """What tests compare of an outcome."""
    step: dict[str, Any] = {"theta": outcome.trained.theta.tolist(), "encoders": encoders_of(outcome.trained)}
    step |= {"centre": outcome.centre.tolist(), "distance": outcome.measured["distance"]}
    step |= {"digest": outcome.graph.digest, "renewed": outcome.details["renewed"]}
    return step | {"certificate": outcome.certificate.to_dict()}


def program() -> int:
    """Prints one JSON object with everything that tests compare."""
    shards, folder, models, *files = sys.argv[1:]
    requests = [gf.Request.from_file(path) for path in files]
    together = ranks()
    assert together is not None
    results = {
        model: of_model(together, shards, Path(folder) / model, model, requests, number)
        for model, number in json.loads(models).items()
    }
    print(json.dumps(results | {"counters": counters(together)}))
    return 0


def of_model(
    together: Ranks, shards: str, run: Path, model: str, requests: list[gf.Request], number: int
) -> dict[str, Any]:
    trained, graph = train_on_ranks(together, shards, model, out=run, epochs=EPOCHS)
    result: dict[str, Any] = {"theta": trained.theta.tolist(), "encoders": encoders_of(trained), "steps": []}
    result |= {"score": trained.utility(graph), "digest": graph.digest}
    if number == len(requests):
        planned, _ = plan_on_ranks(together, run, requests[:1])
        result["plan"] = planned.to_dict()
        result["plan of one kind"] = plan_on_ranks(together, run, requests[1:2])[0].to_dict()
        fallen_back = rehearse_on_ranks(together, run, requests[:1], method="newton", steps=1)
        result["fallback"] = step_of(fallen_back) | {"retrained": fallen_back.details["retrained"]}
    for place, request in enumerate(requests[:number]):
        (answer,) = answer_on_ranks(together, run, [request], request_ids=[f"request-{place}"])
        outcome = answer.outcome
        assert outcome is not None
        result["steps"].append(step_of(outcome))
    if number == len(requests):
        (again,) = answer_on_ranks(together, run, requests[-1:], request_ids=[f"request-{number - 1}"])
        result["repeated"] = again.repeated
        result["checks"] = [check.name for check in verify_on_ranks(together, run).checks]
    return result


if __name__ == "__main__":
    end_rank(run_on_ranks(program))
