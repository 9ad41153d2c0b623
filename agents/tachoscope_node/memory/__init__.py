"""Which process the kernel killed when memory ran out, whose it was, and by whose limit."""
