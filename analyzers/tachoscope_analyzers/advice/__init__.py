"""What to do about a finding, in one or two sentences with the formula and the numbers that were put into it.

One file a kind of advice: a formula over plain numbers, and its words. `job.advice` and `trace.findings.advice` look up the
numbers. Where one is missing there is no advice, and the finding
keeps the class's standard fix. How often to save over a job's whole life is weighed by
`tachoscope_analyzers.checkpoint_policy.advisor`.
"""
