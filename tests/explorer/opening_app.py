"""An application with nothing but the ways to open the traces that the explorer was started with."""

from tachoscope_explorer.page.context import current
from tachoscope_explorer.screens.traces.perfetto import show_opening
from tachoscope_explorer.sources import traces as trace_sources

context = current()
(recording,) = trace_sources.recordings(context.settings, trace_sources.GIVEN)
show_opening(recording.files[0])
