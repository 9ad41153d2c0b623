"""Planted failures in real torchrun jobs: is the root named, rank and line, beside what torchelastic says of the same runs?"""
