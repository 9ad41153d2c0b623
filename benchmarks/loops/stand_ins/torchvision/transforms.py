"""The images are tensors already: these pass them on, or do the same arithmetic on them."""

import torch


class Compose:
    """One after the other."""

    def __init__(self, transforms: list) -> None:
        self._transforms = transforms

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        for transform in self._transforms:
            image = transform(image)
        return image


class ToTensor:
    """A tensor is one."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image


class Normalize:
    """Subtract the mean and divide by the deviation of each channel."""

    def __init__(self, mean: tuple, std: tuple) -> None:
        self._mean = torch.tensor(mean).view(-1, 1, 1)
        self._std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image - self._mean) / self._std
