"""What a rank, its loader workers and its control group hold of memory, and which lines of the job allocate what stays."""
