"""The examples in the docstrings run and print what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import graphforget

SOURCE = Path(graphforget.__file__).parent
MODULES = sorted(
    ".".join(("graphforget", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)
MAIN = {
    "graphforget.graph.graph": "Graph.from_pyg",
    "graphforget.request.request": "Request",
    "graphforget.training.train": "train",
    "graphforget.unlearning.plan": "plan",
    "graphforget.unlearning.registry": "unlearn",
    "graphforget.verification.verify": "verify",
}


@pytest.mark.parametrize("name", sorted({*MODULES, *MAIN}))
def test_the_examples_of_a_module_print_what_they_show(name: str) -> None:
    examples = [test for test in doctest.DocTestFinder().find(importlib.import_module(name), name) if test.examples]
    assert examples
    if name in MAIN:
        assert f"{name}.{MAIN[name]}" in [test.name for test in examples]
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failed = sum(runner.run(test, out=output.append).failed for test in examples)
    assert failed == 0, "".join(output)
