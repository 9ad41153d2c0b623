"""Pipeline jobs by the operations that their workers recorded: the step is replayed, and its time is divided among causes.

Not part of the product: no tool but the authors' of the format records it.
"""
