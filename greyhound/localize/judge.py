"""The passive verdict: which component makes the job slow, or why that can't be told."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from greyhound.localize import own_work, slow_channels
from greyhound.localize.blame import Cause, common_growth, kind_of, link_causes, rank_causes
from greyhound.localize.evidence import Evidence, evidence_of
from greyhound.localize.limits import DEFAULT, Limits
from greyhound.localize.model import RankProfile, Suspect, Verdict
from greyhound.localize.own_work import Growth
from greyhound.localize.slow_channels import Slower
from greyhound.localize.table import Iterations
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
    if not found.timed:
        return Verdict(abstained="GPU times are not known", notes=found.clocks.notes)
    lost_s = _lost(found, before, lost_s, limits)
    if lost_s is not None and lost_s <= 0:
        return Verdict(abstained="the fail-slow had ended when the profile was taken", notes=found.clocks.notes)
    causes, notes = _causes(found, before, limits)
    return _verdict(found, causes, lost_s, (*found.clocks.notes, *notes), limits)


def _lost(found: Evidence, before: Evidence | None, lost_s: float | None, limits: Limits) -> float | None:
    """Seconds lost an iteration while the profile was taken; 0.0 if the fail-slow had ended, None if nobody knows."""
    if before is None or not before.profiles or not _same_work(found, before):
        return lost_s
    grown = found.iteration_s - before.iteration_s
    if lost_s is None:
        return grown if grown > limits.iteration_share * before.iteration_s else None
    return max(grown, 0.0) if grown < limits.gone * lost_s else grown


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


def _causes(found: Evidence, before: Evidence | None, limits: Limits) -> tuple[list[Cause], list[str]]:
    equals = own_work.against_equals(found.iterations, found.equals)
    growths = dict(equals)
    causes: list[Cause] = []
    if before is not None:
        changed = own_work.against_reference(found.iterations, _earlier(found, before))
        common = common_growth(list(changed.values()), limits)
        if common is not None:
            causes.append(_everybody(common))
            changed = {rank: _beyond(growth, common) for rank, growth in changed.items()}
        growths.update(changed)
    ranks, notes = rank_causes(found, list(growths.values()), limits)
    links = link_causes(found, _slower(found, before, limits), limits)
    return causes + ranks + _not_of_ranks(links, ranks), notes


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
        deviations=growth.deviations * max(ratio - 1, 0.0) / max(growth.ratio - 1, 1e-6),
    )


def _everybody(common: Growth) -> Cause:
    kind = kind_of(common)
    text = f"all ranks alike: own time {common.ratio:.2f} x that of the healthy job, {common.own_s * 1e3:.3g} ms more"
    return Cause(kind, (), common.own_s, common.ratio, "everybody", 0.7, (text, "no node is blamed"))


def _slower(found: Evidence, before: Evidence | None, limits: Limits) -> list[Slower]:
    if before is None:
        return slow_channels.against_equals(found.channels, limits)

    def name(evidence: Evidence, channel: Channel) -> Hashable:
        return channel.pair, tuple(_identity(evidence.profiles[member]) for member in channel.members)

    return slow_channels.against_reference(
        found.channels, before.channels, lambda c: name(found, c), lambda c: name(before, c), limits
    )


def _not_of_ranks(links: list[Cause], ranks: list[Cause]) -> list[Cause]:
    """Links without those that a slow GPU at one end explains: its kernels move the data, at its speed."""
    slow = {rank: cause.ratio for cause in ranks if cause.kind == "gpu" for rank in cause.ranks}
    return [link for link in links if not any(link.ratio <= slow.get(rank, 0.0) for rank in link.ranks)]


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
        return Verdict(abstained=f"no rank and no link is slower than comparable ones{lost}", notes=tuple(notes))
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
    ranks = tuple(profile.rank for profile in profiles)
    bus = profiles[0].bus if cause.kind == "gpu" and len(profiles) == 1 else ""
    peer = ranks[1] if cause.kind == "link" and len(ranks) == 2 else -1
    return Suspect(
        cause.kind, nodes, ranks, bus, peer, cause.ratio, min(share, 1.0), min(cause.sure, 1.0), cause.reasons
    )
