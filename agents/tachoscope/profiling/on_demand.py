"""Profiles on demand of a process under the probe: the sampler's thread asks, the training thread records."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from tachoscope.profiling.kineto_client import ProfileClient, is_enabled
from tachoscope.profiling.recording import ProfileRecording
from tachoscope.timing.finished_step import FinishedStep


class Profiles:
    """The profiles of one process, one at a time.

    Attributes:
        recording: the one that is to be recorded or is; None: none.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.recording: ProfileRecording | None = None
        self._client = ProfileClient(environ.get("KINETO_IPC_SOCKET_DIR")) if is_enabled(environ) else None

    def poll(self) -> None:
        """Ask the node's agent, every few seconds; called by the sampler's thread. Never raises, never waits."""
        if self._client is not None:
            order = self._client.poll(idle=self.recording is None)
            if order is not None and self.recording is None:
                self.recording = ProfileRecording(order)

    @property
    def enabled(self) -> bool:
        """Whether a profile may be requested."""
        return self._client is not None

    def step_ended(self, step: FinishedStep) -> None:
        """A step ended; called by the training thread. Never raises."""
        recording = self.recording
        if recording is not None:
            recording.step_ended(step.number)
            if recording.finished:
                self.recording = None

    def close(self) -> None:
        """End the recording under way, and ask for no more; raises nothing."""
        with contextlib.suppress(Exception):
            if self._client is not None:
                self._client.close()
                self._client = None
            if self.recording is not None:
                self.recording.end()
