"""Which samples a replica reads when micro-batches are split unevenly: an iteration's batch stays exactly the same.

The global batch of an iteration is `total` micro-batches in a fixed order. Replica r takes the next m_r of them after
those of the replicas before it. Samples consumed are counted over all replicas, so a checkpoint of any split resumes
at the exact sample.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Share:
    """One replica's part of one iteration: micro-batches `first` .. `first + count - 1` of `total`."""

    first: int
    count: int
    total: int

    def samples(self, consumed: int, micro_batch_size: int) -> Iterator[list[int]]:
        """Numbers of the samples of each micro-batch; `consumed` samples were read by all replicas before."""
        for number in range(self.first, self.first + self.count):
            begin = consumed + number * micro_batch_size
            yield list(range(begin, begin + micro_batch_size))


def share_of(split: tuple[int, ...], replica: int) -> Share:
    """The part of `replica` (its data-parallel rank)."""
    return Share(sum(split[:replica]), split[replica], sum(split))


class _Order:
    """A batch sampler: this replica's micro-batches from `consumed` on, as long as the split stays as it is."""

    def __init__(self, share: Share, consumed: int, micro_batch_size: int, samples: int) -> None:
        self._share, self._consumed = share, consumed
        self._size, self._samples = micro_batch_size, samples

    def __iter__(self) -> Iterator[list[int]]:
        consumed = self._consumed
        while True:
            for numbers in self._share.samples(consumed, self._size):
                yield [number % self._samples for number in numbers]
            consumed += self._share.total * self._size


class Batches:
    """Endless micro-batches of this replica out of a map-style dataset, read ahead by torch's DataLoader.

    At a change of the split what was read ahead is dropped and reading goes on at the exact sample, under the new one.
    `consumed_samples` counts over all replicas and whole iterations: save it in the checkpoint, give it back here.
    Epochs follow each other in the dataset's order: shuffle inside the dataset, as Megatron does.
    """

    def __init__(
        self, dataset: Any, micro_batch_size: int, share: Callable[[], Share], consumed_samples: int = 0, **loader: Any
    ) -> None:
        """`share` says the part of the iteration to come; `loader`: arguments of DataLoader (workers, collate...)."""
        self._dataset = dataset
        self._size = micro_batch_size
        self._share = share
        self._loader = loader
        self.consumed_samples = consumed_samples
        self._reading: tuple[Share, Iterator[Any]] | None = None

    def iteration(self) -> Iterator[Any]:
        """The micro-batches of one iteration of this replica; they count as consumed when it begins."""
        share = self._share()
        if self._reading is None or self._reading[0] != share:
            self._reading = (share, self._open(share))
        self.consumed_samples += share.total * self._size
        reading = self._reading[1]
        return (next(reading) for _ in range(share.count))

    def _open(self, share: Share) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        order = _Order(share, self.consumed_samples, self._size, len(self._dataset))
        return iter(DataLoader(self._dataset, batch_sampler=order, **self._loader))
