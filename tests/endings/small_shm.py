"""python -m tests.endings.small_shm: a step whose /dev/shm fills up; run where /dev/shm is small and nobody else's."""

import contextlib
import os
import shutil
import sys
import time

from tests.endings.bed import SHM, Bed, open_bed

SIZE_MIB, ITERATIONS = 64, 500


def fill() -> None:
    with contextlib.suppress(OSError), open(SHM / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    assert shutil.disk_usage(SHM).free == 0


def in_mid_job(bed: Bed, expected: str) -> None:
    """Nothing can be written any more, while the rings, which have their pages, go on."""
    step = bed.srun(True, iterations=ITERATIONS)
    step.wait_for_ranks()
    fill()
    time.sleep(1)
    assert step.wait() == 0, step.errors
    assert step.losses() == expected
    (SHM / "filler").unlink()
    step.assert_nothing_left()
    print(step.errors)


def from_the_start(bed: Bed, expected: str) -> None:
    """No room for a ring: no watch, and the training is what it was."""
    fill()
    step = bed.srun(True, iterations=ITERATIONS)
    assert step.wait() == 0, step.errors
    assert step.losses() == expected
    (SHM / "filler").unlink()
    step.assert_nothing_left()
    assert 1 <= len(step.said()) <= 2 * step.ranks, step.errors
    print(step.errors)


def main() -> int:
    with open_bed(f"shm{os.getpid() % 10000}") as bed:
        bare = bed.srun(False, iterations=ITERATIONS)
        assert bare.wait() == 0, bare.errors
        in_mid_job(bed, bare.losses())
        from_the_start(bed, bare.losses())
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
