"""What threads do, seen from time to time: stacks, lines of the loop, calls of models."""
