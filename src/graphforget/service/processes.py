"""The processes of a service: the HTTP server, the worker, and both with one command."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

from graphforget.service.app import create_app
from graphforget.service.service import open_service
from graphforget.service.worker import Worker

log = logging.getLogger(__name__)
PAUSE = 1.0  # seconds before a worker that died is started again


def configure_logging() -> None:
    """Lines on standard error. Libraries that would log addresses or values are silent."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("graphforget").setLevel(logging.INFO)
    for name in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.ERROR)


def serve_http(home: Path, *, host: str, port: int) -> None:
    """Serves until a signal comes."""
    configure_logging()
    service = open_service(home)
    service.database.migrate()
    options: Any = {"access_log": False, "server_header": False, "log_level": "warning", "proxy_headers": False}
    uvicorn.run(create_app(service), host=host, port=port, **options)


def run_worker(home: Path, *, lease_seconds: int = 60, parent: int | None = None) -> None:
    """Works until a signal comes, or until the process `parent` has ended."""
    configure_logging()
    service, stop = open_service(home), threading.Event()
    service.database.migrate()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: stop.set())
    if parent is not None:
        threading.Thread(target=_watch_parent, args=(parent, stop), daemon=True).start()
    Worker(service, lease_seconds=lease_seconds).run(stop)


def _watch_parent(parent: int, stop: threading.Event) -> None:
    while not stop.wait(PAUSE):
        if os.getppid() != parent:
            stop.set()


def serve_all(home: Path, *, host: str, port: int) -> None:
    """The HTTP server with a worker beside it, which is started again if it dies."""
    stop = threading.Event()
    keeper = threading.Thread(target=_keep_worker, args=(home, stop), daemon=True)
    open_service(home).database.migrate()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the HTTP server raises it again when it has ended
    keeper.start()
    try:
        serve_http(home, host=host, port=port)
    finally:
        stop.set()
        keeper.join(timeout=30)


def _keep_worker(home: Path, stop: threading.Event) -> None:
    command = [sys.executable, "-m", "graphforget", "serve", "worker", "--home", str(home)]
    command += ["--parent", str(os.getpid())]
    while not stop.is_set():
        process = subprocess.Popen(command)
        while process.poll() is None and not stop.wait(PAUSE):
            pass
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=20)
        elif not stop.is_set():
            log.error("the worker ended with code %s and is started again", process.returncode)
            stop.wait(PAUSE)
