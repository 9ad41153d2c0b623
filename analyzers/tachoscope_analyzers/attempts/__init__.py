"""The attempts of a job: their processes, how far they came, whether they hung and how they ended."""
