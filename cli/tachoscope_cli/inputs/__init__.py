"""What a command is pointed at: records, traces, a live server, the life of a job."""
