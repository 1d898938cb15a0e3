"""The suite that every unlearning method passes, for methods of other packages too. It needs pytest.

from graphforget.testing import MethodConformance

class TestMyMethod(MethodConformance):
    method = "my-method"
"""

from graphforget.testing.checks import (
    check_another_request,
    check_document,
    check_refusals,
    check_request,
    check_seed,
    possible_request,
)
from graphforget.testing.conformance import MethodConformance
from graphforget.testing.examples import example_graph, example_requests

__all__ = [
    "MethodConformance",
    "check_another_request",
    "check_document",
    "check_refusals",
    "check_request",
    "check_seed",
    "example_graph",
    "example_requests",
    "possible_request",
]
