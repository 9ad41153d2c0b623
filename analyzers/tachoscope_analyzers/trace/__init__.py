"""The trace engine: profiler traces read into columns, and what they say."""
