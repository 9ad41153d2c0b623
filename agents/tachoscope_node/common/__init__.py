"""What any part of the agent uses: log lines, checked YAML, watched files, a bounded HTTP client, files of the kernel."""
