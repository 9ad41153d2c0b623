"""Whether hangs are named in time, with evidence that is true, and pauses are not."""
