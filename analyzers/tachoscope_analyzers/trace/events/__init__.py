"""What belongs together in one trace: launches and kernels, operators and calls, steps."""
