"""Public training loops, clean and with planted faults, judged by tachoscope: see `__main__`."""
