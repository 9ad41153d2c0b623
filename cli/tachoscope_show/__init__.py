"""How results are shown: reports, capacities and objectives as text, HTML pages and words. Renders; computes nothing."""
