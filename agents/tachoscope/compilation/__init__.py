"""Compilations by torch.compile: their time, and why code is compiled again."""
