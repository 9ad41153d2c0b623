"""The demonstration: a training with a fault, an agent, a profile."""
