"""What is unusual about a job, and which of its processes are one rank."""
