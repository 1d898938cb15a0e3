"""The pictures of the page: the footprint of a request, and the epsilon of all releases so far."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.exceptions import HTTPException

from graphforget.certificates.releases import compose_since_training
from graphforget.errors import InputError, Mismatch
from graphforget.models.items import item_footprint
from graphforget.report.charts import Line, Panel, inline, line_chart
from graphforget.report.content import footprint_picture
from graphforget.runs.history import read_history
from graphforget.service.api.opendsr import Id
from graphforget.service.open_models import OpenModels
from graphforget.service.planning import held_of
from graphforget.service.security import OpenService
from graphforget.service.states import OPEN
from graphforget.service.tables import Model, Part
from graphforget.service.tokens import ADMIN, APPROVE, READ
from graphforget.service.web.sessions import SignedIn

router = APIRouter(prefix="/page", include_in_schema=False)
Number = Annotated[int, Path(ge=1, le=2**53)]
DRAWING = threading.Lock()  # the style of matplotlib belongs to the process
MOST_POINTS = 5  # beside 0, each with a tick


def _svg(markup: str) -> Response:
    """An image of its own, which may set its own style and nothing else."""
    text = f'<?xml version="1.0" encoding="utf-8"?>\n{markup}'
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}
    return Response(text, media_type="image/svg+xml", headers=policy)


@router.get("/requests/{id}/parts/{number}/footprint.svg")
def footprint(id: Id, number: Number, request: Request, service: OpenService, visitor: SignedIn) -> Response:
    """What an open request touches in a model. Private: it shows what will be deleted."""
    visitor.need(APPROVE, ADMIN)
    models: OpenModels = request.app.state.models
    with service.database.read() as session:
        part = session.get(Part, number)
        if part is None or part.request_id != id or part.request.state not in OPEN:
            raise HTTPException(404, "there is no such picture")
        with DRAWING:
            opened = models.get(part.model.run)
            held = held_of(part.request, part.model, opened)
            if held is None:
                raise HTTPException(404, "the model holds nothing of this request any more")
            graph, trained = opened.graph, opened.trained
            touched = item_footprint(trained.module, graph, graph.without(held), held, trained.reach)
            return _svg(str(footprint_picture(graph, held, touched).svg))


@router.get("/models/{number}/epsilon.svg")
def epsilon(number: Number, service: OpenService, visitor: SignedIn) -> Response:
    """The epsilon of the first releases together, for each number of them. It is public."""
    visitor.need(READ)
    with service.database.read() as session:
        model = session.get(Model, number)
        if model is None:
            raise HTTPException(404, "there is no such model")
        run = model.run
    try:
        ledger = read_history(run).ledger
    except (InputError, Mismatch) as error:
        raise HTTPException(404, "the ledger of the model cannot be read") from error
    count = len(ledger.releases)
    points = sorted({round(index * count / MOST_POINTS) for index in range(MOST_POINTS + 1)})
    first = next((one for one in ledger.certificates if one is not None), None)
    settings = {"epsilon": 1.0, "delta": 1e-5, "releases": 1} if first is None else dict(first.settings)
    values = [
        compose_since_training(ledger.releases[:point], ledger.certificates[:point], delta=settings["delta"]).epsilon
        for point in points
    ]
    promised = [float(settings["epsilon"])] * 2
    lines = [
        Line("all releases so far together", points, values, ours=True),
        Line("promised when the model was trained", [0, max(count, int(settings["releases"]))], promised),
    ]
    with DRAWING:
        return _svg(str(inline(line_chart([Panel("", lines)], "releases", "epsilon", log_y=False))))
