"""Progress of a campaign in the status of its TrainJob: Kubeflow Trainer (2.2 or newer, with its feature gate
TrainJobStatus) gives each pod a URL for it, the certificate of that server, and a token."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench.core.escape import plain
from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.logs.record import EVALUATION
from train_bench.observers.observer import Observer

if TYPE_CHECKING:
    from train_bench.forecast.live import Forecast, Interval

URL, CERTIFICATE, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
"""Environment variables; those of the certificate and of the token name files, of which the second changes."""

PERIOD_SECONDS = 10.0
ANSWER_SECONDS = 5.0
PAUSE_SECONDS = 120.0
"""Time for which a server that does not answer is left alone."""

LONGEST = 64
"""Characters of the name and of the value of a metric."""

WIDE = 1.0
"""Width of the 80 % interval of the remaining time, relative to its median, above which it is no estimate."""


class TrainerStatus(Observer):
    """Posts the progress after evaluations and runs. A server that refuses is named once; the runs go on."""

    def __init__(
        self,
        environ: Mapping[str, str],
        forecast: Callable[[], Forecast | None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._environ, self._forecast, self._say, self._clock = environ, forecast, say, clock
        self._total, self._done = 1, 0
        self._began: float | None = None
        self._metrics: dict[str, str] = {}
        self._due, self._failed, self._warned = 0.0, False, False

    def campaign_started(self, *, total: int, done: int) -> None:
        self._total, self._done = total, done
        self._report(now=True)

    def run_started(self, job: Job) -> None:
        self._began = self._clock()

    def event(self, event: Event) -> None:
        """A new line of the run's log; evaluations are reported."""
        if event.key in EVALUATION and isinstance(event.value, (int, float)):
            self._metrics[str(event.metadata.get("metric", event.key))] = f"{event.value:.6g}"
            self._report()

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        self._done, self._began = self._done + 1, None
        self._report(now=True)

    def status(self) -> dict[str, Any]:
        """The current `trainerStatus`."""
        now, forecast = self._clock(), self._forecast()
        begun, metrics = 0.0, {"runs": f"{self._done} of {self._total}", **self._metrics}
        status: dict[str, Any] = {}
        if forecast is not None:
            left, low, high = (max(0.0, end / 1000 - now) for end in forecast.campaign)
            status["estimatedRemainingSeconds"] = round(left)
            if high - low > WIDE * left:
                metrics["warning"] = f"the end is uncertain: {low:.0f} to {high:.0f} s left (80 %)"
            if forecast.run is not None and self._began is not None:
                begun = _share(now - self._began, forecast.run, now)
        status["progressPercentage"] = min(100, int(100 * (self._done + begun) / self._total))
        status["metrics"] = [
            {"name": name[:LONGEST], "value": value[:LONGEST]} for name, value in metrics.items()
        ]
        return status | {"lastUpdatedTime": datetime.fromtimestamp(now, UTC).isoformat()}

    def _report(self, *, now: bool = False) -> None:
        if self._clock() < self._due and not (now and not self._failed):
            return
        status = self.status()
        uncertain = next((one["value"] for one in status["metrics"] if one["name"] == "warning"), None)
        if uncertain is not None and not self._warned:
            self._warned = True
            self._say(f"status of the TrainJob: {uncertain}")
        try:
            self._post(status)
            self._failed, self._due = False, self._clock() + PERIOD_SECONDS
        except (OSError, ValueError, http.client.HTTPException) as error:
            if not self._failed:
                said = plain(str(error))
                self._say(f"the status of the TrainJob is not updated, results are not affected: {said}")
            self._failed, self._due = True, self._clock() + PAUSE_SECONDS

    def _post(self, status: Mapping[str, Any]) -> None:
        url, token = (
            self._environ[URL],
            Path(self._environ.get(TOKEN, "")).read_text(encoding="utf-8").strip(),
        )
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps({"trainerStatus": status}).encode(), headers)
        # It is in the cluster.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=self._environ.get(CERTIFICATE))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        with urllib.request.build_opener(*handlers).open(request, timeout=ANSWER_SECONDS):
            pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that names another server is an error: the token is not for that."""

    def redirect_request(self, *_: object) -> None:
        return None


def _share(passed: float, run: Interval, now: float) -> float:
    """Share of the current run that is over."""
    left = max(0.0, run.expected / 1000 - now)
    return passed / (passed + left) if passed + left > 0 else 0.0
