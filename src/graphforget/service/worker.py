"""The worker: plans, answers rounds, sends messages and purges, until it is told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from graphforget.service.deliveries import deliver_due
from graphforget.service.leases import Holder
from graphforget.service.open_models import OpenModels
from graphforget.service.planning import plan_received
from graphforget.service.retention import purge_expired
from graphforget.service.rounds import answer_due
from graphforget.service.service import Service

PAUSE = 0.3  # seconds between looks at an empty queue
PURGE_EVERY = 600  # seconds
log = logging.getLogger(__name__)


class Worker:
    """One worker process. Several may share a database."""

    def __init__(self, service: Service, *, lease_seconds: int = 60) -> None:
        self.service, self.models = service, OpenModels()
        self.holder = Holder(lease_seconds)
        self._purged = 0.0
        self._failures: Counter[int] = Counter()

    def step(self) -> int:
        """Does what there is to do once, without sending messages. Returns how many rows were worked on."""
        done = plan_received(self.service, self.models, self.holder)
        done += answer_due(self.service, self.models, self.holder, self._failures)
        if time.monotonic() - self._purged > PURGE_EVERY or not self._purged:
            purge_expired(self.service)
            self._purged = time.monotonic()
        return done

    def deliver(self) -> int:
        return deliver_due(self.service, self.holder)

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. Messages are sent beside it: a slow receiver delays no answer."""
        sender = threading.Thread(target=self._repeat, args=(self.deliver, stop), daemon=True)
        sender.start()
        self._repeat(self.step, stop)
        sender.join(timeout=30)

    def _repeat(self, work: Callable[[], int], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                done = work()
            except Exception as error:  # the database is away, say: the worker goes on when it is back
                log.error("%s failed: %s", work.__name__, type(error).__name__)
                done = 0
                stop.wait(1.0)
            if not done:
                stop.wait(PAUSE)
