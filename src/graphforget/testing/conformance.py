"""The checks as one class of tests. A subclass names its method; pytest finds the tests in it."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import pytest

from graphforget.graph.graph import Graph
from graphforget.request.request import Request
from graphforget.testing.checks import (
    check_another_request,
    check_document,
    check_refusals,
    check_request,
    check_seed,
    possible_request,
)
from graphforget.testing.examples import example_graph, example_requests
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.unlearning.registry import find

KINDS = tuple(example_requests(example_graph()))


class MethodConformance:
    """Tests of one method on one built-in model.

    Attributes:
        method: The name of the method.
        model: The name of a built-in model that it supports.
        training: Options of `gf.train`.
        options: Options of the method.
    """

    method: ClassVar[str]
    model: ClassVar[str] = "sgc"
    training: ClassVar[dict[str, Any]] = {}
    options: ClassVar[dict[str, Any]] = {}

    @classmethod
    @functools.cache
    def start(cls) -> tuple[Trained, Graph]:
        """The model and its graph, the same for all tests."""
        graph = example_graph()
        return train(graph, cls.model, seed=0, **cls.training), graph

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_deletes_what_was_asked_and_leaves_its_arguments_alone(self, kind: str) -> None:
        trained, graph = self.start()
        check_request(self.method, trained, graph, example_requests(graph)[kind], **self.options)

    def test_equal_seeds_give_equal_weights(self) -> None:
        trained, graph = self.start()
        check_seed(self.method, trained, graph, possible_request(self.method, graph), **self.options)

    def test_it_answers_another_request_or_says_that_it_does_not(self) -> None:
        trained, graph = self.start()
        check_another_request(self.method, trained, graph, self._several(graph), **self.options)

    def test_bad_arguments_are_refused_in_one_sentence(self) -> None:
        check_refusals(self.method, *self.start())

    def test_its_answer_is_json(self) -> None:
        trained, graph = self.start()
        outcome = check_request(self.method, trained, graph, possible_request(self.method, graph), **self.options)
        assert outcome is not None
        check_document(outcome)

    def _several(self, graph: Graph) -> list[Request]:
        if "nodes" in find(self.method).kinds:
            return [Request(nodes=[node]) for node in (10, 11, 12)]
        source, target = graph.edge_index
        pairs = graph.edge_index[:, source < target].T[:3].tolist()
        return [Request(edges=[(u, v)]) for u, v in pairs]
