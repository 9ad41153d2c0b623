"""How a process of the job says why it ends: exceptions, exits, signals, its last lines on stderr; and what torchrun sees of it."""
