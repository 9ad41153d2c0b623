"""How often to save: the cost model and the interval it gives."""
