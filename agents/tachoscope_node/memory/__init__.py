"""Which process the kernel killed for want of memory, whose it was, and by whose limit."""
