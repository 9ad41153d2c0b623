"""What is known of the node's GPUs: read from NVML or a dcgm-exporter, judged, and joined to pods and ranks."""
