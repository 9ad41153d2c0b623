"""Figures: each a pure function from what an analyzer found to a plotly figure."""
