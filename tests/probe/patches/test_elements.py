"""How many numbers a batch holds, whatever the loader gives."""

import torch

from tachoscope.patches.torch_loop import elements_of
from trying import each

X = torch.zeros(4, 6)


@each(
    ("batch", "elements"),
    [
        (X, 24),
        ((X, torch.zeros(4)), 24),
        ([X, X], 24),
        ({"input_ids": X, "labels": torch.zeros(4)}, 24),
        (({"input_ids": X}, 3), 24),
        ([[X], X], 24),
        (None, 0),
        ((), 0),
        ({}, 0),
        ("text", 0),
        ((3, X), 0),
    ],
)
def test_the_first_tensor_of_a_batch_is_counted_and_what_has_none_is_not_known(batch: object, elements: int) -> None:
    assert elements_of(batch) == elements
