"""An application with nothing but the ways to open the traces that the explorer was started with."""

from tachoscope_explorer import trace_sources
from tachoscope_explorer.context import current
from tachoscope_explorer.screens.trace_opening import show_opening

context = current()
(recording,) = trace_sources.recordings(context.settings, trace_sources.GIVEN)
show_opening(recording.files[0])
