"""What is collected on a node while a job hangs there: stacks, kernel states, network, the kernel's log, NCCL's word."""
