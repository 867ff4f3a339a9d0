"""Every operation of the torch backend against gloo."""

import json
import re
from pathlib import Path

import pytest

from tests.training import launch

WORKER = str(Path(__file__).with_name("backend_worker.py"))


@pytest.mark.parametrize("ranks", [2, 4])
def test_operations_give_the_bits_of_gloo(ranks):
    for rank, end in enumerate(launch.run([WORKER], ranks)):
        results = json.loads(end.output.splitlines()[-1])
        assert len(results) > 40
        assert {name: text for name, text in results.items() if text} == {}, f"rank {rank}"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("dist.all_reduce(torch.ones(2, 2).to_sparse())", "dense"),
        ("dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR)", "no such reduction"),
        ("dist.all_reduce(torch.ones(4)[::2])", "contiguous"),
        ("dist.all_reduce(torch.ones(2, dtype=torch.uint16))", "isn't supported"),
        ("dist.all_gather_into_tensor(torch.empty(7), torch.ones(2))", "all-gather output|size"),
    ],
)
def test_refusals_name_the_reason(code, message):
    program = (
        "import torch, torch.distributed as dist\n"
        "from greyhound.sandbox import torch_backend as b\n"
        "b.register(); dist.init_process_group(b.BACKEND_NAME)\n" + code
    )
    (end,) = launch.finish(launch.start(["-c", program], 1))
    assert end.status != 0
    assert re.search(message, end.errors), end.errors
