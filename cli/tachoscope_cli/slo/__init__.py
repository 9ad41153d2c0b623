"""`tachoscope slo`: its commands, the backtest of an objective, and what they share."""
