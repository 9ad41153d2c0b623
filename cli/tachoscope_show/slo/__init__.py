"""Reports and backtests of objectives as text and page."""
