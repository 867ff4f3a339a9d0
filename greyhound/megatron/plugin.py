"""`attach` and the handle that the training loop asks at each iteration."""

import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

from greyhound.megatron import page, plans, recipes
from greyhound.megatron.agreement import Agreement
from greyhound.megatron.batches import Batches, Share, share_of

log = logging.getLogger(__name__)
MOST_KEPT = 8


class Page(Protocol):
    """What the handle needs of the control page."""

    def new_plan(self) -> Any: ...

    def report(self, fields: dict[str, Any]) -> None: ...


class Run:
    """One training's handle. Call `begin` once an iteration on every rank, then use what it says.

    Inactive (no --greyhound, or the training's layout is refused) it answers the even split for ever, and no rank
    sends anything.
    """

    def __init__(self, layout: plans.Layout, replica: int, scaling: recipes.Scaling | None, inactive: str = "") -> None:
        """`replica`: this rank's data-parallel rank; `inactive`: why nothing can change, empty if it can."""
        self.layout = layout
        self.replica = replica
        self.inactive = inactive
        self.split = layout.even
        self.iteration = 0
        self._scaling = scaling
        self._page: Page | None = None
        self._agreement: Agreement | None = None
        self._plans: dict[int, plans.Plan] = {}
        self._taken = 0
        self._roles: dict[str, int] = {}
        self._warned = False

    def activate(self, found: Page, agreement: Agreement, roles: dict[str, int]) -> None:
        """From now on plans from `found` are followed; `roles` are this rank's numbers by parallel dimension."""
        self._page, self._agreement, self._roles = found, agreement, roles
        self._tell()

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of this replica in this iteration: Megatron's `num_microbatches`."""
        return self.split[self.replica]

    @property
    def share(self) -> Share:
        """Which micro-batches of the global batch they are."""
        return share_of(self.split, self.replica)

    @property
    def weight(self) -> float:
        """By which a mean over this replica's micro-batches counts in a mean over all replicas: m_i D / M."""
        return self.num_microbatches * self.layout.replicas / self.layout.total

    def batches(self, dataset: Any, micro_batch_size: int, consumed_samples: int = 0, **loader: Any) -> Batches:
        """A reader of this replica's samples that follows the split (see `Batches`)."""
        return Batches(dataset, micro_batch_size, lambda: self.share, consumed_samples, **loader)

    def begin(self) -> int:
        """An iteration begins; returns `num_microbatches`. A plan that all ranks have takes effect here."""
        self.iteration += 1
        if self._page is None or self._agreement is None:
            return self.num_microbatches
        self._look(self._page)
        agreed = self._agreement.step(max(self._plans, default=self._taken))
        if agreed > self._taken:
            self._take(self._plans[agreed])
        self._tell()
        return self.num_microbatches

    def _look(self, found: Page) -> None:
        raw = found.new_plan()
        if raw is None:
            return
        try:
            plan = plans.parse(raw, self.layout)
        except plans.PlanRefusedError as error:
            if not self._warned:
                self._warned = True
                log.warning("greyhound: a plan was ignored: %s", error)
            return
        if plan.number > max(self._plans, default=self._taken):
            self._plans[plan.number] = plan
            for number in sorted(self._plans)[:-MOST_KEPT]:
                del self._plans[number]

    def _take(self, plan: plans.Plan) -> None:
        self.split, self._taken = plan.microbatches, plan.number
        self._plans = {number: kept for number, kept in self._plans.items() if number > plan.number}
        if self._scaling is not None:
            self._scaling.weigh(self.weight)
        log.info("greyhound: micro-batches %s from iteration %d on", list(self.split), self.iteration)

    def _tell(self) -> None:
        if self._page is not None:
            self._page.report(
                {
                    "v": plans.VERSION,
                    "iteration": self.iteration,
                    "t_ns": time.monotonic_ns(),
                    "plan": self._taken,
                    "microbatches": list(self.split),
                    "total": self.layout.total,
                    "multiple": self.layout.multiple,
                    "roles": self._roles,
                }
            )

    def finish(self) -> None:
        """Before the process groups are destroyed."""
        if self._agreement is not None:
            self._agreement.finish()


def attach(model_chunks: Any, num_microbatches: int, config: Any = None, control: Page | None = None) -> Run:
    """The handle of this training; call it on every rank, after megatron's process groups and DDP are made.

    `model_chunks`: the model of this rank wrapped in megatron.core's DistributedDataParallel, or a list of such chunks;
    `num_microbatches`: of each replica and iteration, as without Greyhound; `config`: their TransformerConfig (default:
    the first chunk's). One small all-reduce asks whether all ranks can follow plans; if one can't, none does, and rank
    0 says why. `control` is for tests. Raises ValueError for less than one micro-batch.
    """
    from megatron.core import parallel_state as state

    if num_microbatches < 1:
        raise ValueError(f"num_microbatches={num_microbatches}: each replica needs one at least")
    chunks: Sequence[Any] = model_chunks if isinstance(model_chunks, list | tuple) else [model_chunks]
    recipe = recipes.examine(chunks, config)
    replicas = int(state.get_data_parallel_world_size())
    layout = plans.Layout(replicas, num_microbatches * replicas, recipe.multiple)
    found, why = (control, "") if control is not None else page.find()
    why = why or recipe.refused or ("only one data-parallel replica" if replicas == 1 else "")
    inactive = _agree_on_activity(why)
    scaling = recipes.Scaling(chunks) if recipe.weighs and not inactive else None
    run = Run(layout, int(state.get_data_parallel_rank()), scaling, inactive)
    if not inactive and found is not None:
        run.activate(found, Agreement(), _roles(state))
    return run


def even(num_microbatches: int) -> Run:
    """The handle of a training that doesn't want to follow plans: the even split for ever."""
    from megatron.core import parallel_state as state

    replicas = int(state.get_data_parallel_world_size())
    layout = plans.Layout(replicas, num_microbatches * replicas)
    return Run(layout, int(state.get_data_parallel_rank()), None, "not asked for")


def _agree_on_activity(why: str) -> str:
    """Why nothing can change, empty if all ranks can: a rank alone in an agreement would wait for ever."""
    import torch.distributed as dist

    answers: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(answers, why)
    reasons = [answer for answer in answers if answer]
    if reasons and dist.get_rank() == 0 and not all("no --greyhound" in reason for reason in reasons):
        log.warning("greyhound: micro-batches stay even: %s", reasons[0])
    return reasons[0] if reasons else ""


def _roles(state: Any) -> dict[str, int]:
    """This rank's number in each parallel dimension, and their sizes."""
    return {
        "tp": int(state.get_tensor_model_parallel_rank()),
        "tp_size": int(state.get_tensor_model_parallel_world_size()),
        "dp": int(state.get_data_parallel_rank()),
        "dp_size": int(state.get_data_parallel_world_size()),
        "pp": int(state.get_pipeline_model_parallel_rank()),
        "pp_size": int(state.get_pipeline_model_parallel_world_size()),
    }
