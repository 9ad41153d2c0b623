"""A stand-in for torchvision, which is not installed: random images, no files, no downloads. Not the real package."""

from torchvision import datasets, models, transforms, utils

__version__ = "0.0.0+standin"
__all__ = ["datasets", "models", "transforms", "utils"]
