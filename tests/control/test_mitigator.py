"""The master's mitigation: from a verdict to a plan that all ranks follow, and back, over fakes of job and profiles."""

import math
from types import SimpleNamespace

import pytest

from greyhound.control.lines import event_line
from greyhound.control.mitigator import CHECK_S, TAKEN_WITHIN_S, Mitigator
from greyhound.control.plan_message import PlanOrder, PluginWord, RoleRow
from greyhound.control.plan_node import PlanNode, row_of
from greyhound.localize.model import RankProfile
from greyhound.trace import mailbox

REPORT = {"v": 1, "iteration": 7, "t_ns": 1, "plan": 0, "microbatches": [4, 4], "total": 8, "multiple": 1}


class Bed:
    """Two replicas of one rank each, on two nodes; replica 1 takes `slow` times as long for a micro-batch."""

    def __init__(self, mode="on", plugin=True):
        alive = SimpleNamespace(alive=True)
        self.job = SimpleNamespace(
            mode=mode,
            iteration=0,
            iteration_s=1.0,
            healthy_s=1.0,
            samples={"0:a": alive, "1:b": alive},
            merger=SimpleNamespace(current=None),
            verdict=None,
            notices=[],
        )
        self.job.notice = self.job.notices.append
        self.events, self.wanted, self.plugin = [], 0, plugin
        self.latest = (0, [])
        self.slow, self.split, self.plan = 1.0, [4, 4], 0
        self.now_s = 0.0
        self.mitigator = Mitigator(self.job, self, self.emit)

    def emit(self, kind, t_s, data=None, episode=None, iteration=None, component=None):
        self.events.append((kind, data))

    def want(self):
        self.wanted += 1
        self.profile()

    def profile(self):
        own_s = [self.split[0] / 4, self.slow * self.split[1] / 4]
        made = [
            RankProfile(node, key, node, "", "w", True, (1.0,) * 4, (own,) * 4, (0.0,) * 4, (0.0,) * 4)
            for node, key, own in ((0, "a", own_s[0]), (1, "b", own_s[1]))
        ]
        self.latest = (self.latest[0] + 1, made)

    def fail_slow(self, kind="gpu", slow=1.5):
        self.slow = slow
        self.job.merger.current = SimpleNamespace(id="e1")
        self.job.verdict = {"episode": "e1", "suspects": [{"kind": kind}]}
        self.profile()

    def run(self, iterations, follow=True):
        for _ in range(iterations):
            self.now_s += self.job.iteration_s
            self.job.iteration += 1
            self.job.iteration_s = max(self.split[0] / 4, self.slow * self.split[1] / 4)
            if self.plugin:
                for node, key in ((0, "a"), (1, "b")):
                    self.mitigator.take(node, PluginWord([RoleRow(key, node, self.split, 1, self.plan)]))
            self.mitigator.step(1e9 + self.now_s, self.now_s)
            for order in self.mitigator.outgoing:
                assert isinstance(order, PlanOrder)
                if follow:
                    self.split, self.plan = order.microbatches, order.number
            self.mitigator.outgoing = []

    def kinds(self):
        return [kind for kind, _ in self.events]


def test_a_slow_replica_gets_fewer_micro_batches_once_it_has_cost_a_switch():
    bed = Bed()
    bed.fail_slow(slow=3.0)
    bed.run(6)
    assert bed.split == [6, 2] and bed.kinds() == ["plan", "action"]
    plan = bed.events[0][1]
    assert plan["microbatches"] == [6, 2] and plan["loss_s"] >= plan["cost_s"] and plan["gain"] == pytest.approx(0.75)
    assert plan["micro_batch_s"] == [0.25, 0.75]
    told = [event_line({"kind": kind, "episode": "e1", "data": data}) for kind, data in bed.events]
    reason = "2.0 s lost since it began, S2 costs 1 s"
    assert told[0] == f"plan 1: micro-batches 6, 2 by replica ({reason}), to remove 75% of the loss"
    assert told[1] == "S2: micro-batches are now 6, 2 by replica"


def test_it_is_taken_back_when_the_component_is_healthy_again_for_a_while():
    bed = Bed()
    bed.fail_slow(slow=3.0)
    bed.run(10)
    bed.slow = 1.0
    bed.run(100)
    assert bed.split == [4, 4] and bed.kinds() == ["plan", "action", "plan", "undo"]
    assert bed.events[2][1]["undo"] and "healthy for" in bed.events[2][1]["reason"]
    assert bed.wanted * CHECK_S <= bed.now_s + CHECK_S


def test_a_split_follows_a_component_that_gets_slower():
    bed = Bed()
    bed.fail_slow(slow=1.7)
    bed.run(10)
    assert bed.split == [5, 3]
    bed.slow = 7.0
    bed.run(60)
    assert bed.split == [7, 1] and bed.kinds() == ["plan", "action", "plan", "action"]


@pytest.mark.parametrize("kind", ["link", "storage", "unknown"])
def test_nothing_is_done_against_what_micro_batches_do_not_help(kind):
    bed = Bed()
    bed.fail_slow(kind, slow=3.0)
    bed.run(50)
    assert bed.split == [4, 4] and bed.kinds() == ["plan"]
    assert bed.events[0][1]["passed_over"] == {"S2": f"doesn't help against a slow {kind}"}


def test_a_training_without_the_plugin_is_told_once_why_nothing_is_done():
    bed = Bed(plugin=False)
    bed.fail_slow(slow=3.0)
    bed.run(50)
    assert bed.kinds() == ["plan"]
    assert "2 of 2 ranks don't use greyhound.megatron" in bed.events[0][1]["passed_over"]["S2"]
    text = event_line({"kind": "plan", "episode": "e1", "data": bed.events[0][1]})
    assert text == "nothing is done about e1: S2 2 of 2 ranks don't use greyhound.megatron"


def test_observe_never_acts():
    bed = Bed(mode="observe")
    bed.fail_slow(slow=3.0)
    bed.run(50)
    assert bed.events == [] and bed.split == [4, 4]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_the_owner_s_word_takes_a_split_back(mode):
    bed = Bed()
    bed.fail_slow(slow=3.0)
    bed.run(10)
    assert bed.split == [6, 2]
    bed.job.mode = mode
    bed.run(3)
    assert bed.split == [4, 4] and bed.kinds() == ["plan", "action", "plan", "undo"]
    bed.run(50)
    assert bed.kinds().count("plan") == 2


def test_an_undo_that_is_not_taken_at_once_is_waited_for():
    bed = Bed()
    bed.fail_slow(slow=3.0)
    bed.run(10)
    bed.job.mode = "observe"
    bed.run(300, follow=False)
    assert bed.split == [6, 2] and bed.job.notices == []
    bed.split, bed.plan = [4, 4], 2
    bed.run(2)
    assert bed.kinds()[-1] == "undo"


def test_a_profile_begun_under_the_split_before_says_nothing():
    bed = Bed()
    bed.fail_slow(slow=3.0)
    bed.run(6)
    assert bed.split == [6, 2]
    bed.split = [4, 4]  # as the profile saw it
    bed.profile()
    bed.split = [6, 2]
    bed.run(5)
    assert bed.kinds() == ["plan", "action"]


def test_a_fail_slow_that_ends_before_it_has_cost_a_switch_changes_nothing():
    bed = Bed()
    bed.fail_slow(slow=1.7)
    bed.run(1)
    bed.job.merger.current, bed.slow = None, 1.0
    bed.run(50)
    assert bed.events == []


def test_ranks_that_do_not_follow_end_the_attempts():
    bed = Bed()
    bed.fail_slow(slow=3.0)
    bed.run(200, follow=False)
    assert bed.kinds()[0] == "plan" and "action" not in bed.kinds()
    assert "was taken by 0 of 2 ranks only" in bed.job.notices[0]
    assert bed.now_s > TAKEN_WITHIN_S and bed.kinds().count("plan") <= 2


def test_slow_iterations_are_given_time_to_agree():
    bed = Bed()
    bed.job.healthy_s = 40.0
    bed.fail_slow(slow=3.0)
    bed.now_s, bed.job.iteration_s = 0.0, 120.0
    bed.job.iteration += 1
    for node, key in ((0, "a"), (1, "b")):
        bed.mitigator.take(node, PluginWord([RoleRow(key, node, [4, 4], 1, 0)]))
    bed.mitigator.step(1e9, 0.0)
    (order,) = bed.mitigator.outgoing
    bed.mitigator.step(1e9 + 2 * TAKEN_WITHIN_S, 2 * TAKEN_WITHIN_S)
    assert bed.job.notices == []
    bed.plan, bed.split = order.number, order.microbatches
    bed.run(1, follow=False)
    assert bed.kinds() == ["plan", "action"]


def test_ranks_of_before_a_restart_with_fewer_replicas_say_nothing():
    bed = Bed()
    gone = PluginWord([RoleRow("gone", 3, [2, 2, 2, 2], 1, 0)])
    bed.mitigator.take(3, gone)
    bed.fail_slow(slow=3.0)
    ended = RankProfile(3, "gone", 3, "", "w", True, (1.0,) * 4, (0.5,) * 4, (0.0,) * 4, (0.0,) * 4)
    bed.latest = (1, [*bed.latest[1], ended])
    bed.run(6)
    assert bed.split == [6, 2] and bed.kinds() == ["plan", "action"]


def test_nothing_is_planned_from_times_that_are_none():
    bed = Bed()
    bed.fail_slow(slow=math.nan)
    bed.run(50)
    assert bed.split == [4, 4] and "action" not in bed.kinds()


# -- the node's part ----------------------------------------------------------------------------------


class Watch:
    def __init__(self, key, word):
        self.key, self.word, self.told = key, word, []

    def plugin_word(self):
        return self.word

    def tell_plan(self, text):
        self.told.append(text)


def report(**fields):
    return {**REPORT, "roles": {"dp": 1}, **fields}


def test_a_report_becomes_a_row():
    assert row_of("k", report()) == RoleRow("k", 1, [4, 4], 1, 0)


@pytest.mark.parametrize(
    "word",
    [
        None,
        7,
        [],
        {},
        report(v=2),
        report(roles=None),
        report(roles={}),
        report(microbatches="44"),
        report(microbatches=[4, -4]),
        report(microbatches=[4, 4.5]),
        report(multiple=0),
        report(plan="x"),
    ],
)
def test_a_report_that_is_none_is_ignored(word):
    assert row_of("k", word) is None


def test_plans_reach_each_rank_once_and_late_ones_too():
    node, first = PlanNode(), Watch("a", report())
    assert node.step(0.0, [first]) == [PluginWord([RoleRow("a", 1, [4, 4], 1, 0)])]
    assert node.step(1.0, [first]) == []
    node.take(PlanOrder(2, [6, 2]))
    node.take(PlanOrder(1, [5, 3]))
    late = Watch("b", None)
    for now_s in (2.0, 3.0):
        node.step(now_s, [first, late])
    assert first.told == late.told == [b'{"v":1,"number":2,"microbatches":[6,2]}']
    assert node.step(60.0, [first]) != []


def test_a_plan_that_no_mailbox_holds_is_left_out():
    node, rank = PlanNode(), Watch("a", report())
    node.take(PlanOrder(1, [1000] * 4096))
    node.step(0.0, [rank])
    assert rank.told == []
    node.take(PlanOrder(2, [100] * 4000))
    node.step(1.0, [rank])
    assert len(rank.told) == 1 and len(rank.told[0]) <= mailbox.MOST_BYTES


def test_a_replica_outside_of_its_split_is_no_role():
    assert RoleRow("k", 2, [4, 4], 1, 0).role() is None
