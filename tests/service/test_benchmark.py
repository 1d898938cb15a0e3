"""The benchmark of the service fails if a request ended twice, or not at all."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

STATES = {"a": "completed", "b": "refused"}
ENDS = [("a", "completed"), ("b", "refused")]


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "service.py"
    spec = importlib.util.spec_from_file_location("service_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_requests_that_all_ended_once_are_right() -> None:
    benchmark().check_ended_once(["a", "b"], STATES, Counter(ENDS))


@pytest.mark.parametrize(
    ("submitted", "states", "ends"),
    [
        (["a", "b", "c"], STATES, ENDS),
        (["a"], STATES, ENDS),
        (["a", "b", "b"], STATES, ENDS),
        (["a", "b"], STATES | {"b": "batched"}, ENDS[:1]),
        (["a", "b"], STATES, [*ENDS, ENDS[0]]),
        (["a", "b"], STATES, [*ENDS, ("a", "refused")]),
        (["a", "b"], STATES, [ENDS[0], ("b", "completed")]),
        (["a", "b"], STATES, ENDS[:1]),
    ],
)
def test_requests_that_did_not_all_end_once_are_a_failure(
    submitted: list[str], states: dict[str, str], ends: list[tuple[str, str]]
) -> None:
    with pytest.raises(SystemExit):
        benchmark().check_ended_once(submitted, states, Counter(ends))
