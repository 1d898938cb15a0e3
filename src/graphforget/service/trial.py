"""A service to try: the patients graph, a model, a token, and short rounds."""

from __future__ import annotations

from pathlib import Path

from graphforget.datasets.registry import load
from graphforget.runs.write import save_run
from graphforget.service.registration import register_model
from graphforget.service.service import init_service, open_service
from graphforget.service.settings import Settings
from graphforget.service.tokens import make_token
from graphforget.training.train import train

ROUND = 15  # seconds


def make_trial(home: Path, *, port: int) -> str:
    """Makes the service in a new folder. Returns a token that may do everything."""
    settings = Settings(base_url=f"http://127.0.0.1:{port}", round_seconds=ROUND)
    init_service(home, settings)
    graph = load("patients")
    save_run(home / "runs" / "patients", train(graph, "sgc", sigma=0.01), graph)
    service = open_service(home)
    try:
        register_model(service, "patients", home / "runs" / "patients")
        with service.database.write() as session:
            return make_token(session, "trial", ["admin"], now=service.now)
    finally:
        service.database.close()
