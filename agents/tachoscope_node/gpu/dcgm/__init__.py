"""GPUs as dcgm-exporter reports them, joined with what NVML adds."""
