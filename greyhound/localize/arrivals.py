"""Who comes last where only the hosts' times are known.

A host that runs ahead of its GPU comes early whatever the GPU does, and one that waits for its GPU comes late together
with all that wait for the same collective. So only a rank whose own host is slow shows: it has more time of its own
than ranks with the same work, and it is the last to come to most of its collectives.
"""

from collections.abc import Sequence

import numpy as np

from greyhound.localize.clocks import Clocks
from greyhound.localize.model import RankProfile
from greyhound.localize.table import SYMMETRIC, Calls, instances_of

LAST_MOSTLY = 0.6
"""Of a rank's collectives that it must be the last to come to; by chance it would be 1 in the number of members."""
_FEW = 5


def last_shares(profiles: Sequence[RankProfile], calls: Calls, clocks: Clocks) -> dict[int, float]:
    """By rank the share of its collectives to which its host came last; members on clocks that are compared."""
    node_offset = [clocks.offset_s.get(profile.node, np.nan) for profile in profiles]
    mine = calls.where(np.isin(calls.op, SYMMETRIC))
    entry = mine.entry - np.array(node_offset)[mine.rank] if len(mine) else mine.entry
    found = instances_of(mine)
    counts, last = np.zeros(len(profiles)), np.zeros(len(profiles))
    if len(found.first) == 0:
        return {}
    latest = np.maximum.reduceat(entry[found.order], found.first)
    shared = (found.members > 1) & np.isfinite(latest)
    each = np.repeat(shared, found.members)
    ranks = mine.rank[found.order][each]
    np.add.at(counts, ranks, 1.0)
    np.add.at(last, ranks, (entry[found.order] == np.repeat(latest, found.members))[each])
    return {rank: float(last[rank] / counts[rank]) for rank in np.flatnonzero(counts >= _FEW).tolist()}
