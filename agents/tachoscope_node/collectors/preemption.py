"""Asks the cloud provider whether it will take this machine back: its notice for spot and preemptible machines.

AWS says it two minutes before, by a service that wants a token first:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
Google Cloud 30 seconds before, and does not name the time: https://cloud.google.com/compute/docs/instances/spot
Azure 30 seconds before at least: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

import msgspec

from tachoscope.preemption.notice_file import Notice
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.metrics.training import PREEMPTION_NOTICE
from tachoscope_core.net.http_client import HttpError, request
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_service.metrics.family import Family

Provider = Literal["aws", "gcp", "azure"]
METADATA_URL = "http://169.254.169.254"
"""The same link-local address with all three."""
ANSWER_SECONDS = 2.0
_MOST_BYTES = 1 << 20
_TOKEN_SECONDS = 21600
_WRONG = (OSError, ValueError, msgspec.DecodeError)


class MetadataError(Exception):
    """The metadata service gave no valid answer."""


class _Action(msgspec.Struct):
    action: str
    time: str


class _Event(msgspec.Struct, rename="pascal"):
    event_id: str
    event_type: str
    resources: list[str] = []
    not_before: str = ""


class _Events(msgspec.Struct, rename="pascal"):
    events: list[_Event]


class Metadata:
    """The metadata service of one provider. Asks only the address of the URL: no redirect is followed, no proxy used."""

    def __init__(self, provider: Provider, url: str = "", *, unix_clock: Callable[[], float] = time.time) -> None:
        self._ask = {"aws": self._aws, "gcp": self._gcp, "azure": self._azure}[provider]
        self._url = (url or METADATA_URL).rstrip("/")
        self._unix_clock = unix_clock
        self._token = ""
        self._machine: str | None = None

    def notice(self) -> Notice | None:
        """Return the notice, None where there is none.

        Raises:
            MetadataError: the service cannot be asked, or says something else.
        """
        try:
            return self._ask()
        except HttpError as error:
            raise MetadataError(str(error)) from None
        except _WRONG as error:
            raise MetadataError(f"{type(error).__name__}: {error}"[:200]) from None

    def _request(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> tuple[int, bytes]:
        url = f"{self._url}{path}"
        answer = request(url, seconds=ANSWER_SECONDS, most_bytes=_MOST_BYTES, method=method, headers=headers)
        return answer.status, answer.content

    def _page(self, path: str, headers: Mapping[str, str]) -> bytes:
        status, body = self._request(path, headers)
        if status != 200:
            raise MetadataError(f"{path.partition('?')[0]} answers {status}")
        return body

    def _aws(self) -> Notice | None:
        path = "/latest/meta-data/spot/instance-action"
        status, body = self._request(path, {"X-aws-ec2-metadata-token": self._token}) if self._token else (401, b"")
        if status == 401:  # there is no token yet, or it ran out
            asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
            status, body = self._request("/latest/api/token", asked, method="PUT")
            if status != 200:
                raise MetadataError(f"/latest/api/token answers {status}")
            self._token = body.decode("ascii")
            status, body = self._request(path, {"X-aws-ec2-metadata-token": self._token})
        if status == 404:
            return None
        if status != 200:
            raise MetadataError(f"{path} answers {status}")
        action = msgspec.json.decode(body, type=_Action)
        return Notice("aws", self._unix_clock(), datetime.fromisoformat(action.time).astimezone(UTC).timestamp())

    def _gcp(self) -> Notice | None:
        said = self._page("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}).strip()
        if said not in {b"TRUE", b"FALSE"}:
            raise MetadataError(f"/computeMetadata/v1/instance/preempted is neither TRUE nor FALSE: {said[:40]!r}")
        return Notice("gcp", self._unix_clock()) if said == b"TRUE" else None

    def _azure(self) -> Notice | None:
        headers = {"Metadata": "true"}
        if self._machine is None:
            page = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            self._machine = self._page(page, headers).decode().strip()
        events = self._page("/metadata/scheduledevents?api-version=2020-07-01", headers)
        for event in msgspec.json.decode(events, type=_Events).events:
            # The page lists what comes to any machine of the same set.
            if event.event_type == "Preempt" and self._machine in event.resources:
                deadline = parsedate_to_datetime(event.not_before).timestamp() if event.not_before else 0.0
                return Notice("azure", self._unix_clock(), deadline)
        return None


class PreemptionCollector:
    """Asks in a thread of its own, so that nothing else waits for a metadata service that does not answer.

    Attributes:
        current: the notice that stands, None where there is none. Its time is when it was first seen.
    """

    name: Final = "preemption"
    metrics: tuple[Metric, ...] = (PREEMPTION_NOTICE,)

    def __init__(self, provider: Provider, *, url: str = "", interval_seconds: float = 5.0) -> None:
        self.interval_seconds = interval_seconds
        self.current: Notice | None = None
        self._provider = provider
        self._metadata = Metadata(provider, url)
        self._stop = threading.Event()
        self._error: str | None = None
        self._answered = False
        self._thread = threading.Thread(target=self._run, name="tachoscope-preemption", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                found = self._metadata.notice()
            except MetadataError as error:  # a notice that stood may stand: it is not taken back by this
                self._error = str(error)
            else:
                self.current = found if found is None or self.current is None else self.current
                self._error, self._answered = None, True
            if self._stop.wait(self.interval_seconds):
                return

    def collect(self) -> list[Family]:
        """Return whether there is a notice. Raises MetadataError while the service cannot be asked, NoDataError before it was."""
        if self._error is not None:
            raise MetadataError(f"{self._provider}: {self._error}")
        if not self._answered:
            raise NoDataError
        return [Family(PREEMPTION_NOTICE, [((self._provider,), float(self.current is not None))])]

    def close(self) -> None:
        self._stop.set()
