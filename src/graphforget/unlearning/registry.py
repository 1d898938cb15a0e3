"""The methods by name, and the one call that runs any of them."""

from __future__ import annotations

from typing import Any

from graphforget.errors import InputError
from graphforget.graph import Graph
from graphforget.request import Request
from graphforget.trained import Trained
from graphforget.training import Progress
from graphforget.unlearning.base import Method
from graphforget.unlearning.idea import Idea
from graphforget.unlearning.outcome import Asked, Outcome
from graphforget.unlearning.retrain import Retrain

METHODS: dict[str, Method[Any]] = {method.name: method for method in (Idea(), Retrain())}


def find(name: str) -> Method[Any]:
    method = METHODS.get(str(name).lower())
    if method is None:
        raise InputError(f"there is no method {name!r}, only {', '.join(METHODS)}")
    return method


def unlearn(
    trained: Trained,
    graph: Graph,
    request: Request,
    *,
    method: str = "idea",
    epsilon: float = 1.0,
    delta: float = 1e-5,
    sigma: float | None = None,
    seed: int | None = None,
    noise_seed: int | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    **options: Any,
) -> Outcome:
    """Makes `trained` forget what `request` names of `graph`. Arguments are left as they are.

    `outcome.trained` and `outcome.graph` go into the next request and stay private; `outcome.released` has the noise
    that the certificate speaks of. `epsilon` and `delta` set how much noise that is, unless `sigma` is given: then the
    certificate says which epsilon it implies, and `sigma=0` releases the weights as they are, with no guarantee. The
    noise comes from the operating system's cryptographic source; a `noise_seed` makes it reproducible, and removable.
    `seed` is that of a method's own randomness. `options` belong to the method (`solver="lissa"` for `idea`).
    """
    found = find(method)
    return found.unlearn(
        trained,
        graph,
        request,
        asked=Asked(epsilon=epsilon, delta=delta, sigma=sigma),
        seed=seed,
        noise_seed=noise_seed,
        device=device,
        progress=progress,
        **options,
    )
