"""`gf.unlearn`: the one call that runs any method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphforget.certificates.issue import Filing
from graphforget.certificates.levels import Level
from graphforget.graph.graph import Graph
from graphforget.progress import Progress
from graphforget.request.batch import as_requests
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.methods.newton import check_noise
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.selection import Otherwise
from graphforget.unlearning.settings import Settings


# Longer than 50 lines because of its signature and its documentation.
def unlearn(
    trained: Trained,
    graph: Graph,
    request: Request | Sequence[Request],
    *,
    method: str = AUTO,
    epsilon: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    level: Level | None = None,
    otherwise: Otherwise = "retrain",
    seed: int | None = None,
    noise_seed: int | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    filing: Filing | None = None,
    **options: Any,
) -> Outcome:
    """Answers a deletion request: makes `trained` forget the data that `request` names. The arguments do not change.

    `outcome.trained` and `outcome.graph` are private; pass them to the next request. `outcome.released` is the model
    with the noise of the certificate, and `outcome.public()` may be shown together with it.

    `method="auto"` uses the cheapest method whose guarantee holds: Newton steps (`certified`) for strongly convex
    models with noise, and retraining (`exact`) for all others. If you name a method whose guarantee does not hold for
    this model, the request is refused unless `level="empirical"`.

    Args:
        trained: The model, as `train`, `adopt` or an earlier outcome gives it.
        graph: The graph that the model was trained on, or the retained graph of the last request.
        request: The nodes, edges and attributes to forget. A list of requests is answered by one release with one
            certificate, which commits to each of them (`outcome.annex.commitments`, in the order of the list).
        method: The name of a method, or "auto".
        epsilon: By default the epsilon that was fixed at training. The certificate lists every setting that differs.
        delta: By default the delta that was fixed at training.
        sigma: The noise for this request, for methods that accept it; by default that of the model.
        level: The lowest acceptable level.
        otherwise: "retrain" or "refuse", if the level cannot be reached or the method fails.
        seed: The seed of the method's own randomness.
        noise_seed: Makes the noise reproducible, and therefore removable. By default the noise comes from the
            cryptographic source of the operating system.
        device: The torch device to compute on.
        progress: A function that is called with a stage, the steps done and their total.
        **options: Options of the method, such as `solver="lissa"` for `idea`.

    Returns:
        The outcome, with the certificate.

    Raises:
        InputError: The arguments do not fit together, or the request names something that is not in the graph.
        Refused: The level cannot be reached, or the result would be unusable. Nothing is released.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> trained = gf.train(graph, "sgc")
        >>> outcome = gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"]))
        >>> outcome.method, outcome.level, outcome.certificate.epsilon
        ('newton', 'certified', 1.0)
        >>> graph.num_nodes - outcome.graph.num_nodes
        1
    """
    settings = Settings(
        method=method,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        level=level,
        otherwise=otherwise,
        seed=seed,
        noise_seed=noise_seed,
        device=device,
        progress=progress,
        filing=filing,
        options=options,
    )
    requests = as_requests(request)
    merged = settings.checking_method.checked_request(trained, graph, requests)
    if settings.named is None or not settings.named.method.takes_sigma:
        check_noise(trained, settings.target(trained))
    return settings.release(trained, graph, merged, also_chosen={}, requests=requests)
