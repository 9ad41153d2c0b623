"""Where the time of the devices of one trace goes: kernels, idle, and why."""
