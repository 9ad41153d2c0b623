"""What the probe says of the loader that a job trains with."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from tachoscope.training.loaders import LoaderWatch, asks_for_its_worker, bytes_of, private_bytes, settings_of
from trying import each


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3)


class Whole(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from (torch.zeros(3) for _ in range(4))


class Divided(Whole):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from self.mine()

    def mine(self) -> Iterator[torch.Tensor]:
        def part() -> Iterator[int]:
            worker = get_worker_info()
            yield from range(worker.id if worker else 0, 4, worker.num_workers if worker else 1)

        return (torch.zeros(3) for _ in part())


class Inheriting(Divided):
    pass


def no_work(number: int) -> None: ...


@each(("kind", "divides"), [(Whole, False), (Divided, True), (Inheriting, True), (Numbers, False)])
def test_a_data_set_divides_itself_where_its_code_asks_for_its_worker(kind: type, divides: bool) -> None:
    assert asks_for_its_worker(kind) == divides


@each(
    ("make", "iterable", "shards"),
    [
        (partial(DataLoader, Numbers(), batch_size=2), False, False),
        (partial(DataLoader, Whole(), batch_size=2), True, False),
        (partial(DataLoader, Divided(), batch_size=2), True, True),
        (partial(DataLoader, Whole(), num_workers=1, worker_init_fn=no_work), True, True),
    ],
)
def test_the_kind_of_the_data_set_is_told(make: Callable[[], Any], iterable: bool, shards: bool) -> None:
    found = settings_of(iter(make()), torch.zeros(2, 3))

    assert (found.iterable, found.shards, found.batch_bytes) == (iterable, shards, 24)


def test_settings_of_workers_are_those_of_the_loader() -> None:
    loader = DataLoader(Numbers(), num_workers=1, prefetch_factor=3, persistent_workers=True)

    found = settings_of(iter(loader), None)

    assert (found.workers, found.prefetch_factor, found.persistent_workers, found.pin_memory) == (1, 3, True, False)
    assert found.shared_memory_bytes > 0


def test_iterators_of_one_data_set_are_counted_and_each_is_read_once() -> None:
    watch, data_set = LoaderWatch(), Numbers()
    seen = []
    for _ in range(3):
        iterator = iter(DataLoader(data_set))
        for batch in iterator:
            watch.batch_given(iterator, batch)
            seen.append(watch.settings)

    assert [one.iterators for one in seen if one] == [1] * 4 + [2] * 4 + [3] * 4
    assert len({id(one) for one in seen}) == 3


def test_the_bytes_of_a_batch_are_those_of_all_its_tensors() -> None:
    batch = {"x": torch.zeros(2, 3), "more": [torch.zeros(4, dtype=torch.int64), (torch.zeros(1, dtype=torch.uint8), "ab")]}

    assert bytes_of(batch) == 24 + 32 + 1 + 2
    assert bytes_of(object()) == 0


def test_memory_of_a_process_that_is_gone_is_not_known() -> None:
    assert private_bytes(2**22 + 1) is None
