"""The life of a job over all its attempts: where its rank-seconds went, what failed, what recovery and checkpoints cost.

Pure functions over the records of a job. Inside of this package times are seconds since the life's origin (`processes.Clock`): so
differences keep the precision of the monotonic clocks.
"""
