"""The plugin's parts without a training: mailboxes, plans, samples, and the handle over a scripted agreement."""

import ctypes
import json
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.megatron import page, plans, recipes
from greyhound.megatron.batches import Batches, Share, share_of
from greyhound.megatron.plugin import Run
from greyhound.trace import layout, mailbox

EVEN = plans.Layout(replicas=2, total=8)


# -- mailboxes ----------------------------------------------------------------------------------------


def empty():
    return memoryview((ctypes.c_char * layout.GH_MAILBOX_BYTES)()).cast("B")


def test_a_message_is_read_as_it_was_written_and_once():
    plan, report = empty(), empty()
    control = page.ControlPage(plan, report)
    assert control.new_plan() is None
    mailbox.write(plan, b'{"v":1}', version=1)
    assert control.new_plan() == {"v": 1}
    assert control.new_plan() is None
    mailbox.write(plan, b'{"v":2}')
    assert control.new_plan() == {"v": 2}
    control.report({"iteration": 7})
    assert json.loads(mailbox.read(report)[1]) == {"iteration": 7}


def test_a_message_that_is_being_written_is_not_read():
    memory = empty()
    mailbox.write(memory, b"whole")
    memory[0] += 1
    assert mailbox.read(memory) is None
    mailbox.write(memory, b"after a writer that died")
    assert mailbox.read(memory)[1] == b"after a writer that died"


@pytest.mark.parametrize("place", [layout.GH_MAILBOX_HEADER_BYTES, 12, 8 + 8])
def test_a_damaged_message_is_ignored_and_said_once(place, caplog):
    memory = empty()
    mailbox.write(memory, b'{"v":1}')
    memory[place] ^= 3
    control = page.ControlPage(memory, empty())
    assert control.new_plan() is None
    mailbox.write(memory, b"not json")
    assert control.new_plan() is None
    assert len([text for text in caplog.messages if "a plan was ignored" in text]) == 1


def test_what_does_not_fit_is_refused_or_left_out():
    memory = empty()
    with pytest.raises(ValueError, match="at most"):
        mailbox.write(memory, b"x" * (mailbox.MOST_BYTES + 1))
    page.ControlPage(empty(), memory).report({"long": "x" * mailbox.MOST_BYTES})
    assert mailbox.read(memory) is None


def test_without_the_hook_there_is_no_page():
    found, why = page.find()
    assert found is None and "no --greyhound" in why


# -- plans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (None, "not a plan"),
        ([1, 2], "not a plan"),
        ({"v": 2, "number": 1, "microbatches": [6, 2]}, "not a plan of this release"),
        ({"v": 1, "number": 0, "microbatches": [6, 2]}, "number"),
        ({"v": 1, "number": True, "microbatches": [6, 2]}, "number"),
        ({"v": 1, "number": 1}, "None for 2 data-parallel ranks"),
        ({"v": 1, "number": 1, "microbatches": "62"}, "for 2 data-parallel ranks"),
        ({"v": 1, "number": 1, "microbatches": [8]}, "for 2 data-parallel ranks"),
        ({"v": 1, "number": 1, "microbatches": [8, 0]}, "from 1 to 8"),
        ({"v": 1, "number": 1, "microbatches": [6.0, 2]}, "from 1 to 8"),
        ({"v": 1, "number": 1, "microbatches": [6, 3]}, "an iteration has 8"),
        ({"v": 1, "number": 1, "microbatches": "__import__('os').abort()"}, "for 2 data-parallel ranks"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(raw, text):
    with pytest.raises(plans.PlanRefusedError, match=text):
        plans.parse(raw, EVEN)


def test_an_interleaved_pipeline_asks_for_multiples():
    with pytest.raises(plans.PlanRefusedError, match="multiples of 2"):
        plans.parse({"v": 1, "number": 1, "microbatches": [5, 3]}, plans.Layout(2, 8, 2))
    assert plans.parse({"v": 1, "number": 1, "microbatches": [6, 2]}, plans.Layout(2, 8, 2)).microbatches == (6, 2)


# -- recipes ------------------------------------------------------------------------------------------


def chunk(*factors):
    buckets = [SimpleNamespace(gradient_scaling_factor=factor) for factor in factors]
    return SimpleNamespace(bucket_groups=[SimpleNamespace(buckets=buckets)], expert_parallel_bucket_groups=[])


@pytest.mark.parametrize(
    ("chunks", "config", "multiple", "refused"),
    [
        ([chunk(0.5)], {}, 1, ""),
        ([chunk(0.5)], {"calculate_per_token_loss": True}, 1, ""),
        ([chunk(0.5)], {"context_parallel_size": 2}, 1, ""),
        ([chunk(0.5)], {"expert_model_parallel_size": 2}, 1, "expert parallelism"),
        ([SimpleNamespace()], {}, 1, "DistributedDataParallel"),
        ([chunk(0.5)] * 2, {"pipeline_model_parallel_size": 2}, 2, ""),
        ([chunk(0.5)] * 2, {"microbatch_group_size_per_vp_stage": 4, "pipeline_model_parallel_size": 2}, 4, ""),
        ([chunk(0.5)] * 2, {"pipeline_model_parallel_size": 2, "batch_p2p_comm": True}, 1, "batch_p2p_comm"),
        ([chunk(0.5)] * 2, {}, 1, "unknown size"),
    ],
)
def test_each_recipe_is_accepted_or_refused_with_its_reason(chunks, config, multiple, refused):
    recipe = recipes.examine(chunks, SimpleNamespace(**config))
    assert recipe.multiple == multiple and refused in recipe.refused and bool(refused) == bool(recipe.refused)


@pytest.mark.parametrize("chunks", [[], [SimpleNamespace()], [chunk(0.5)]])
def test_a_model_without_a_config_is_refused(chunks):
    assert "no TransformerConfig" in recipes.examine(chunks, None).refused


def test_the_first_chunk_s_config_is_taken():
    model = chunk(0.5)
    model.config = SimpleNamespace(expert_model_parallel_size=2)
    assert "expert parallelism" in recipes.examine([model], None).refused


def test_factors_are_weighed_and_put_back():
    model = chunk(0.5, 1.0)
    scaling = recipes.Scaling([model])
    scaling.weigh(1.5)
    assert [bucket.gradient_scaling_factor for bucket in model.bucket_groups[0].buckets] == [0.75, 1.5]
    scaling.weigh(1.0)
    assert [bucket.gradient_scaling_factor for bucket in model.bucket_groups[0].buckets] == [0.5, 1.0]


# -- samples ------------------------------------------------------------------------------------------

SPLITS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(SPLITS, st.integers(0, 10**9), st.integers(1, 16))
def test_an_iteration_s_samples_are_the_same_whatever_the_split(split, consumed, size):
    parts = [share_of(tuple(split), replica) for replica in range(len(split))]
    read = [number for part in parts for numbers in part.samples(consumed, size) for number in numbers]
    assert read == list(range(consumed, consumed + sum(split) * size))


@pytest.mark.parametrize("workers", [0, 2])
def test_reading_ahead_goes_on_at_the_exact_sample_under_another_split(workers):
    pytest.importorskip("torch")
    share = Share(0, 2, 4)
    batches = Batches(range(1000), 3, lambda: share, 24, num_workers=workers)
    read = [batch.tolist() for batch in batches.iteration()]
    assert read == [[24, 25, 26], [27, 28, 29]] and batches.consumed_samples == 36
    share = Share(1, 3, 4)
    assert [batch.tolist() for batch in batches.iteration()] == [[39, 40, 41], [42, 43, 44], [45, 46, 47]]
    resumed = Batches(range(1000), 3, lambda: share, batches.consumed_samples, num_workers=workers)
    assert [b.tolist() for b in resumed.iteration()] == [b.tolist() for b in batches.iteration()]


# -- the handle ---------------------------------------------------------------------------------------


class Ranks:
    """Agreements of all ranks in one process: a step of the last rank closes the round."""

    def __init__(self, count):
        self.count, self.posted, self.answer = count, [], -1

    def step(self, newest):
        answer = self.answer
        self.posted.append(newest)
        if len(self.posted) == self.count:
            self.answer = newest if len(set(self.posted)) == 1 else -1
            self.posted = []
        return answer

    def finish(self):
        pass


class Control:
    def __init__(self):
        self.plans, self.told = [], []

    def new_plan(self):
        return self.plans.pop(0) if self.plans else None

    def report(self, fields):
        self.told.append(fields)


class Delayed:
    """The same answer for all ranks of a round: what was posted in the round before."""

    def __init__(self, shared, rank):
        self.shared, self.rank = shared, rank

    def step(self, newest):
        if self.rank == 0:
            self.shared.before = self.shared.answer
        self.shared.step(newest)
        return self.shared.before

    def finish(self):
        pass


def handles(count=2, spec=EVEN):
    shared, made = Ranks(count), []
    shared.before = -1
    for rank in range(count):
        run = Run(spec, rank % spec.replicas, recipes.Scaling([chunk(1 / spec.replicas)]))
        control = Control()
        run.activate(control, Delayed(shared, rank), {"dp": rank})
        made.append((run, control))
    return made


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), min_size=1, max_size=5))
def test_all_ranks_switch_at_the_same_iteration_whenever_each_saw_the_plan(script):
    runs = handles(3)
    arrivals = []
    for number, (late, first) in enumerate(script, 1):
        plan = {"v": 1, "number": number, "microbatches": [first, 8 - first]}
        arrivals += [(8 * number + (rank * late) % 4, rank, plan) for rank in range(3)]
    for iteration in range(8 * len(script) + 16):
        for at, rank, plan in arrivals:
            if at == iteration:
                runs[rank][1].plans.append(plan)
        for run, _ in runs:
            run.begin()
        assert len({run.split for run, _ in runs}) == 1
    assert runs[0][0].split == (script[-1][1], 8 - script[-1][1])
    assert runs[0][0].weight == script[-1][1] * 2 / 8
    assert runs[0][1].told[-1]["plan"] == len(script)


def test_bad_plans_are_said_once_and_change_nothing(caplog):
    runs = handles()
    for _ in range(3):
        for run, control in runs:
            control.plans.append({"v": 1, "number": 1, "microbatches": [9, -1]})
            run.begin()
    assert {run.split for run, _ in runs} == {(4, 4)}
    assert len([text for text in caplog.messages if "ignored" in text]) == len(runs)


def test_an_inactive_handle_answers_the_even_split():
    run = Run(EVEN, 1, None, "no --greyhound")
    assert [run.begin() for _ in range(3)] == [4, 4, 4]
    assert run.share == Share(4, 4, 8) and run.weight == 1.0 and not math.isnan(run.weight)
    run.finish()
