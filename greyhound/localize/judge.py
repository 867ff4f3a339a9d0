"""The passive verdict: which component makes the job slow, or why that can't be told."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from greyhound.localize import own_work, slow_channels
from greyhound.localize.blame import (
    Cause,
    common_growth,
    hosts_that_come_last,
    kind_of,
    link_causes,
    rank_causes,
)
from greyhound.localize.evidence import Evidence, evidence_of
from greyhound.localize.limits import DEFAULT, Limits
from greyhound.localize.model import RankProfile, Suspect, Verdict
from greyhound.localize.own_work import Growth
from greyhound.localize.slow_channels import Slower
from greyhound.localize.table import Iterations
from greyhound.localize.together import pauses_of_all
from greyhound.localize.transfer import Channel


def judge(
    now: Sequence[RankProfile],
    reference: Sequence[RankProfile] | None = None,
    lost_s: float | None = None,
    limits: Limits = DEFAULT,
) -> Verdict:
    """What is slow in the profiles `now`.

    `reference`: profiles of the same job while it was healthy; without one, ranks with the same work and groups of the
    same kind are compared with one another. `lost_s`: seconds that an iteration takes longer than a healthy one; None:
    nobody reported a fail-slow, and what is found is taken for all that is lost.

    What a component costs is the growth of its own time (or of its transfers) in an iteration. In a pipeline of M
    micro-batches a slow stage delays each of the M, so the whole growth is lost; ranks of one stage delay it together,
    so the longest growth of a stage counts, and those of different stages add up, at most to all that is lost.
    """
    found = evidence_of(now)
    before = evidence_of(reference) if reference else None
    if not found.profiles:
        return Verdict(abstained="no rank has finished an iteration in the profile")
    if before is not None and before.timed != found.timed:
        before = None
    pauses = _pauses(found, before, limits) if lost_s is not None else []
    lost_s = _lost(found, before, lost_s, limits)
    if lost_s is not None and lost_s <= 0:
        if pauses:
            return _verdict(found, pauses, None, found.notes, limits)
        return Verdict(abstained="the fail-slow had ended when the profile was taken", notes=found.notes)
    causes, notes = _causes(found, before, lost_s, limits)
    verdict = _verdict(found, causes, lost_s, (*found.notes, *notes), limits)
    return verdict if verdict.suspects or not pauses else _verdict(found, pauses, lost_s, found.notes, limits)


def _pauses(found: Evidence, before: Evidence | None, limits: Limits) -> list[Cause]:
    """The pauses of all ranks between iterations, if they explain the loss; medians don't see one in a few."""
    pauses = pauses_of_all(found.iterations, _earlier(found, before), limits) if before is not None else None
    if pauses is None:
        return []
    some = "some iterations" if pauses.kind == "storage" else "each iteration"
    text = f"all ranks alike pause after {some}: {pauses.cost_s * 1e3:.3g} ms more an iteration; no node is blamed"
    return [Cause(pauses.kind, (), pauses.cost_s, pauses.ratio, "everybody", 0.7, (text,))]


def _lost(found: Evidence, before: Evidence | None, lost_s: float | None, limits: Limits) -> float | None:
    """Seconds lost an iteration while the profile was taken; 0.0 if the fail-slow had ended, None if nobody knows.

    The few iterations of a profile say less about that than the tracker's many, but they are those in which the ranks
    were timed; where the two differ, the smaller is what must be explained.
    """
    if lost_s is None or before is None or not before.profiles or not _same_work(found, before):
        return lost_s
    grown = found.iteration_s - before.iteration_s
    return 0.0 if grown < limits.gone * lost_s else min(grown, lost_s)


def _identity(profile: RankProfile) -> tuple[int, str]:
    return profile.node, profile.key


def _same_work(found: Evidence, before: Evidence) -> bool:
    earlier = {_identity(profile): profile.work for profile in before.profiles}
    return all(earlier.get(_identity(profile)) == profile.work for profile in found.profiles)


def _earlier(found: Evidence, before: Evidence) -> list[Iterations | None]:
    """Each rank's iterations in the reference, if it did the same work then."""
    rows = {
        (_identity(profile), profile.work): rows
        for profile, rows in zip(before.profiles, before.iterations, strict=True)
    }
    return [rows.get((_identity(profile), profile.work)) for profile in found.profiles]


def _causes(
    found: Evidence, before: Evidence | None, lost_s: float | None, limits: Limits
) -> tuple[list[Cause], list[str]]:
    """What is slow: of a fail-slow what has changed since the reference; else also what was slow all the time."""
    growths = own_work.against_equals(found.iterations, found.equals, limits)
    causes: list[Cause] = []
    if before is not None:
        changed = own_work.against_reference(found.iterations, _earlier(found, before), limits)
        common = common_growth(list(changed.values()), limits)
        if common is not None:
            if lost_s is not None:  # else the tracker would have seen it
                causes.append(_everybody(common, before.iteration_s))
            changed = {rank: _beyond(growth, common) for rank, growth in changed.items()}
        growths = growths | changed if lost_s is not None else changed | growths
    ranks, notes = rank_causes(found, list(growths.values()), limits)
    if not found.timed:
        ranks = hosts_that_come_last(found, ranks)
    links = link_causes(found, _slower(found, before, lost_s, limits), limits)
    return _needed(causes + ranks, _not_of_ranks(links, ranks), lost_s, limits), notes


def _beyond(growth: Growth, common: Growth) -> Growth:
    """What a rank has grown by beyond all others."""
    own_s = growth.own_s - common.own_s
    ratio = max(growth.ratio - (common.ratio - 1), 1e-6)
    return replace(
        growth,
        own_s=own_s,
        gpu_s=growth.gpu_s - common.gpu_s,
        host_s=growth.host_s - common.host_s,
        boundary_s=growth.boundary_s - common.boundary_s,
        ratio=ratio,
        certainty=growth.certainty * max(ratio - 1, 0.0) / max(growth.ratio - 1, 1e-6),
    )


def _everybody(common: Growth, healthy_s: float) -> Cause:
    """Where all ranks work longer, waiting for one another in pipelines takes longer in proportion, too."""
    kind = kind_of(common)
    cost_s = common.own_s if kind == "input" else max(common.own_s, (common.ratio - 1) * healthy_s)
    text = f"all ranks alike: own time {common.ratio:.2f} x that of the healthy job, {common.own_s * 1e3:.3g} ms more"
    return Cause(kind, (), cost_s, common.ratio, "everybody", 0.7, (text, "no node is blamed"))


def _slower(found: Evidence, before: Evidence | None, lost_s: float | None, limits: Limits) -> list[Slower]:
    equals = slow_channels.against_equals(found.channels, limits)
    if before is None:
        return equals

    def name(evidence: Evidence, channel: Channel) -> Hashable:
        return channel.pair, tuple(_identity(evidence.profiles[member]) for member in channel.members)

    changed = slow_channels.against_reference(
        found.channels, before.channels, lambda c: name(found, c), lambda c: name(before, c), limits
    )
    first, second = (changed, equals) if lost_s is not None else (equals, changed)
    known = {id(slower.channel) for slower in first}
    return first + [slower for slower in second if id(slower.channel) not in known]


def _not_of_ranks(links: list[Cause], ranks: list[Cause]) -> list[Cause]:
    """Links without those that a slow GPU at one end explains: its kernels move the data, at its speed."""
    slow = {rank: cause.ratio for cause in ranks if cause.kind == "gpu" for rank in cause.ranks}
    return [link for link in links if not any(link.ratio <= slow.get(rank, 0.0) for rank in link.ranks)]


def _needed(causes: list[Cause], links: list[Cause], lost_s: float | None, limits: Limits) -> list[Cause]:
    """Without links that are a little slow where the ranks alone explain all: uneven arrivals lengthen transfers."""
    alone = lost_s is not None and _explained_s(causes) >= lost_s
    return causes + [link for link in links if not alone or link.ratio >= limits.clear_ratio]


def _explained_s(causes: Sequence[Cause]) -> float:
    paths: dict[object, float] = defaultdict(float)
    for cause in causes:
        paths[cause.path] = max(paths[cause.path], cause.cost_s)
    return sum(paths.values())


def _verdict(
    found: Evidence, causes: list[Cause], lost_s: float | None, notes: Sequence[str], limits: Limits
) -> Verdict:
    if not causes:
        lost = "" if lost_s is None else f"; {lost_s * 1e3:.3g} ms an iteration are unexplained"
        known = "" if found.timed else "GPU times are not known, and of the hosts' "
        return Verdict(abstained=f"{known}no rank and no link is slower than comparable ones{lost}", notes=tuple(notes))
    total = _explained_s(causes) if lost_s is None else lost_s
    explained = min(_explained_s(causes) / total, 1.0)
    if explained < limits.explained:
        evidence = [reason for cause in causes for reason in cause.reasons]
        text = f"unexplained: what was found makes up {explained:.0%} of the lost time"
        return Verdict(explained=explained, abstained=text, notes=(*notes, *evidence))
    kept = [cause for cause in causes if cause.cost_s >= limits.part * total]
    scale = max(1.0, sum(cause.cost_s for cause in kept) / total)
    suspects = [_suspect(found, cause, cause.cost_s / total / scale) for cause in kept]
    return Verdict(tuple(sorted(suspects, key=lambda s: -s.share)), explained, notes=tuple(notes))


def _suspect(found: Evidence, cause: Cause, share: float) -> Suspect:
    profiles = [found.profiles[rank] for rank in cause.ranks]
    nodes = tuple(sorted({profile.node for profile in profiles}))
    ranks = tuple(sorted(profile.rank for profile in profiles))
    bus = profiles[0].bus if cause.kind == "gpu" and len(profiles) == 1 else ""
    peer = ranks[1] if cause.kind == "link" and len(ranks) == 2 else -1
    return Suspect(
        cause.kind, nodes, ranks, bus, peer, cause.ratio, min(share, 1.0), min(cause.sure, 1.0), cause.reasons
    )
