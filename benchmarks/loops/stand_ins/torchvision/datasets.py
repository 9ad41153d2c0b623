"""Random images in memory; how many is said by LOOPS_IMAGES."""

import os

import torch
from torch.utils.data import Dataset

VALIDATION_OF_IMAGENET = 50_000
"""So many images the example asks for when it means its validation set, which then is a twentieth of the other."""


class _Images(Dataset):
    def __init__(self, size: int, shape: tuple, classes: int, transform: object = None) -> None:
        generator = torch.Generator().manual_seed(1)
        self._kept = list(torch.rand((min(size, 256), *shape), generator=generator))
        self._size, self._classes, self._transform = size, classes, transform

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple:
        if index >= self._size:
            raise IndexError(index)
        image = self._kept[index % len(self._kept)]
        return (self._transform(image) if self._transform else image), index % self._classes


class MNIST(_Images):
    """Random 28x28 images."""

    def __init__(self, root: str, train: bool = True, download: bool = False, transform: object = None) -> None:
        size = int(os.environ.get("LOOPS_IMAGES", "12800"))
        super().__init__(size if train else max(size // 10, 256), (1, 28, 28), 10, transform)


class FakeData(_Images):
    """Random images of any size."""

    def __init__(
        self, size: int = 1000, image_size: tuple = (3, 224, 224), num_classes: int = 10, transform: object = None
    ) -> None:
        images = int(os.environ.get("LOOPS_IMAGES", size))
        super().__init__(images // 20 if size == VALIDATION_OF_IMAGENET else images, image_size, num_classes, transform)
