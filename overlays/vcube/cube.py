"""The hypercube as a function: who is in which cluster of whom, who is whose child, who tests whom.

E. P. Duarte Jr., L. C. E. Bona, V. K. Ruoso: "VCube: a provably scalable distributed diagnosis algorithm", ScalA 2014;
J. P. de Araujo et al.: "VCube-PS", JPDC 2018, section 2. Cluster s of node i, c(i,s), has 2^(s-1) places, and its order is
that of increasing XOR distance from i. So cluster s is one run of numbers, which starts at ((i >> (s-1)) ^ 1) << (s-1), and
its first member is found by halving that run s-1 times. The papers have 2^d nodes; here a place may be empty.

A set of places is a whole number, bit j for place j: it is a value, it is copied for nothing, and a run of it is a shift.
Bounds: places below `PLACES`; a set is PLACES / 8 bytes at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

DIMENSION = 14  # a guess: every member knows all others, which is no way to keep more than some thousands
PLACES = 1 << DIMENSION


def cluster(i: int, j: int) -> int:
    """The s for which j is in c(i,s); 0 for i itself."""
    return (i ^ j).bit_length()


def c(i: int, s: int) -> list[int]:
    """c(i,s) as it stands in the papers' table, for all places of the cube."""
    return [i ^ distance for distance in range(1 << (s - 1), 1 << s)]


def run(i: int, s: int, members: int) -> int:
    """The members of c(i,s), counted from the start of its run."""
    half = s - 1
    return members >> (((i >> half) ^ 1) << half) & ((1 << (1 << half)) - 1)


def first(i: int, s: int, members: int) -> int | None:
    """The first of c(i,s) that is a member."""
    inside = run(i, s, members)
    if not inside:
        return None
    place, size = ((i >> (s - 1)) ^ 1) << (s - 1), 1 << (s - 1)
    while size > 1:
        size >>= 1
        high, low = inside >> size, inside & ((1 << size) - 1)
        if high and (i & size or not low):
            inside, place = high, place + size
        else:
            inside = low
    return place


def heads(i: int, h: int, members: int) -> list[int | None]:
    """The first member of each cluster up to h, from the nearest cluster on; None where nobody is."""
    return [first(i, s, members) for s in range(1, h + 1)]


def children(i: int, h: int, members: int) -> list[int]:
    """CHILDREN(i, t, h) of the paper."""
    return [child for child in heads(i, h, members) if child is not None]


def nearest(place: int, members: int) -> int | None:
    """The member at the least XOR distance from a place, itself if it is one: the root of what belongs to that place."""
    if members >> place & 1:
        return place
    found = (first(place, s, members) for s in range(1, DIMENSION + 1))
    return next((member for member in found if member is not None), None)


def parent(i: int, root: int, members: int) -> int:
    """Who has i as its child in the tree of the members that `root` spans; both are members, and not the same.

    Where no place is empty, the way from the root is that of the highest differing bit first.
    """
    above = root
    while (child := first(above, cluster(above, i), members)) != i:
        assert child is not None, "i is a member"
        above = child
    return above


def assigned(i: int, s: int, known: int, up: int) -> list[int]:
    """Those of c(i,s) that i tests: the j, up or not, for whom i is the first of c(j,s) that is up.

    In the half where i stands, j looks for the one nearest to itself, from the highest bit down. It comes to i when it has i's
    bit, or when nobody up is on the other side of that bit, which is cluster k+1 of i for bit k.
    """
    start, top = ((i >> (s - 1)) ^ 1) << (s - 1), 1 << (s - 1)
    free = sum(1 << k for k in range(s - 1) if not run(i, k + 1, up))
    return [j for j in (start + offset for offset in places(run(i, s, known))) if not (i ^ top ^ j) & ~free]


def dimension(members: int) -> int:
    """How many clusters there are: ceil(log2 N) where the members are 0 to N - 1."""
    return max(0, members.bit_length() - 1).bit_length()


def to_set(several: Iterable[int]) -> int:
    members = 0
    for place in several:
        members |= 1 << place
    return members


def places(members: int) -> Iterator[int]:
    """The members of a set, from the lowest on."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def place_of(key: bytes) -> int:
    """Return the place of a key in the largest cube; in a smaller one the bits above say nothing."""
    return int.from_bytes(sha256(key).digest()[:4]) % PLACES
