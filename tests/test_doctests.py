"""The examples in the docstrings run and print what they show."""

from __future__ import annotations

import doctest
import importlib
import operator
from pathlib import Path

import pytest

import graphforget

SOURCE = Path(graphforget.__file__).parent
MODULES = sorted(
    ".".join(("graphforget", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", ["Graph.from_pyg", "Request", "plan", "train", "unlearn", "verify"])
def test_the_main_functions_have_an_example(name: str) -> None:
    assert ">>> " in (operator.attrgetter(name)(graphforget).__doc__ or "")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_show(name: str) -> None:
    examples = [test for test in doctest.DocTestFinder().find(importlib.import_module(name), name) if test.examples]
    assert examples
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failed = sum(runner.run(test, out=output.append).failed for test in examples)
    assert failed == 0, "".join(output)
