"""Every metric that tachoscope exports or reads, each once: its name, unit, labels and meaning."""
