"""GPUs as NVML reports them."""
