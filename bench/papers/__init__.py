"""Figures and tables of papers, measured again: the paper's value, ours, how far apart they may be, and a picture.

Each figure is one module here and one line of `FIGURES`, under an id `system.what`. The table alone is enough to list
them: a module is imported when its figure is reproduced. `libweft.bench.papers.figure` says what a module holds and how it
measures; `libweft.bench.papers.picture` draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from libweft.peer.errors import UsageError


class Listed(NamedTuple):
    """`source` is the paper, and which figure or table of it; or the theory, where no paper measured it."""

    id: str
    module: str
    title: str
    source: str


HYPARVIEW = "HyParView (Leitao, Pereira and Rodrigues, DSN 2007)"
GOSSIPSUB = "GossipSub (Vyzovitis et al., arXiv 2007.02754, 2020)"
PLUMTREE = "Epidemic Broadcast Trees (Leitao, Pereira and Rodrigues, SRDS 2007)"
STUDY = "A Study on Publish-Subscribe Systems over Overlay Networks (Duarte, Almeida and Fona, 2022), its empty results"
VCUBE_PS = "VCube-PS (de Araujo, Arantes, Duarte, Rodrigues and Sens, JPDC 2018), against the authors' own program"
VCUBE_PB = "VCube-PB (de Araujo, Rodrigues, Arantes, Duarte and Sens, SBRC 2017)"

FIGURES: dict[str, Listed] = {
    figure.id: figure
    for figure in (
        Listed(
            "flood.percolation",
            "libweft.bench.papers.flood_percolation",
            "The first flood after a mass crash, on a random 5-regular graph",
            "theory: site percolation (Callaway, Newman, Strogatz and Watts, Phys. Rev. Lett. 85, 2000), which the first"
            " message after failures in Epidemic Broadcast Trees (Leitao, Pereira and Rodrigues, SRDS 2007) follows",
        ),
        Listed(
            "hyparview.reliability",
            "libweft.bench.papers.hyparview_reliability",
            "Who is reached after a mass crash, mean of 1,000 messages",
            f"{HYPARVIEW}, its figure of reliability after massive failures",
        ),
        Listed(
            "hyparview.healing",
            "libweft.bench.papers.hyparview_healing",
            "Cycles until messages reach all survivors of a mass crash",
            f"{HYPARVIEW}, its figure of healing times",
        ),
        Listed(
            "hyparview.graph",
            "libweft.bench.papers.hyparview_graph",
            "The graph of the active views after 50 cycles",
            f"{HYPARVIEW}, its table of graph properties and in-degrees",
        ),
        Listed(
            "hyparview.percolation",
            "libweft.bench.papers.hyparview_percolation",
            "The first flood after a mass crash, on HyParView's views",
            f"{HYPARVIEW}, against the theory of flood.percolation",
        ),
        Listed(
            "causal.compare",
            "libweft.bench.papers.causal_compare",
            "What causal order costs, in bytes and in time",
            "no paper: order over three routers and VCube-PS (de Araujo et al., JPDC 2018), in the same discussion",
        ),
        Listed(
            "gossipsub.attacks",
            "libweft.bench.papers.gossipsub_attacks",
            "Honest messages among sybils, hardened and plain",
            f"{GOSSIPSUB}, its attacks, of which the runs here are shorter",
        ),
        Listed(
            "plumtree.rmr",
            "libweft.bench.papers.plumtree_rmr",
            "Redundancy of the first messages after the joins",
            f"{PLUMTREE}, its figure of redundancy in a stable network",
        ),
        Listed(
            "plumtree.ldh",
            "libweft.bench.papers.plumtree_ldh",
            "The last delivery hop of a settled tree",
            f"{PLUMTREE}, its figure of the last hop in a stable network",
        ),
        Listed(
            "plumtree.crash",
            "libweft.bench.papers.plumtree_crash",
            "Redundancy while overlay and tree mend after a mass crash",
            f"{PLUMTREE}, its figures of massive failures",
        ),
        Listed(
            "plumtree.churn",
            "libweft.bench.papers.plumtree_churn",
            "Fifty crashes a cycle, for a hundred cycles",
            f"{PLUMTREE}, its figures of constant failures",
        ),
        Listed(
            "study.reliability",
            "libweft.bench.papers.study_reliability",
            "Subscribers reached, against the rate and the size of messages",
            f"{STUDY}, section 4.1",
        ),
        Listed(
            "study.redundancy",
            "libweft.bench.papers.study_redundancy",
            "Copies of a message, against the rate and the size of messages",
            f"{STUDY}, section 4.2",
        ),
        Listed(
            "study.latency",
            "libweft.bench.papers.study_latency",
            "Time to subscribers, against the rate and the size of messages",
            f"{STUDY}, section 4.3",
        ),
        Listed(
            "vcube-ps.fig4a",
            "libweft.bench.papers.vcube_ps_fig4a",
            "Time to a subscriber, one publisher and one message",
            f"{VCUBE_PS}, Figure 4a",
        ),
        Listed(
            "vcube-ps.fig4b",
            "libweft.bench.papers.vcube_ps_fig4b",
            "PUB messages of one publication",
            f"{VCUBE_PS}, Figure 4b",
        ),
        Listed(
            "vcube-ps.fig5",
            "libweft.bench.papers.vcube_ps_fig5",
            "Time to a subscriber, many publishers",
            f"{VCUBE_PS}, Figure 5",
        ),
        Listed(
            "vcube-ps.table1",
            "libweft.bench.papers.vcube_ps_table1",
            "Mean length of send queues, all publish",
            f"{VCUBE_PS}, Table 1",
        ),
        Listed(
            "vcube-ps.fig7",
            "libweft.bench.papers.vcube_ps_fig7",
            "Time to a subscriber, many topics, some of them popular",
            f"{VCUBE_PS}, Figure 7",
        ),
        Listed(
            "vcube-ps.fig8a",
            "libweft.bench.papers.vcube_ps_fig8a",
            "Time to a subscriber while subscribers change places",
            f"{VCUBE_PS}, Figure 8a; the program has no such run",
        ),
        Listed(
            "vcube-ps.fig8b",
            "libweft.bench.papers.vcube_ps_fig8b",
            "Time to a subscriber, ever more subscribers changing places",
            f"{VCUBE_PS}, Figure 8b; the program has no such run",
        ),
        Listed(
            "vcube-ps.fig9",
            "libweft.bench.papers.vcube_ps_fig9",
            "Time to a subscriber, trees of brokers",
            f"{VCUBE_PS}, Figure 9",
        ),
        Listed(
            "vcube-ps.fig6",
            "libweft.bench.papers.vcube_ps_fig6",
            "Causal barriers of a discussion, and how long they hold back",
            f"{VCUBE_PS}, Figure 6 and the text after it",
        ),
        Listed(
            "vcube-pb.fig3",
            "libweft.bench.papers.vcube_pb_fig3",
            "Hops until subscribers have the message",
            f"{VCUBE_PB}, Figure 3, against the hypercube's arithmetic",
        ),
        Listed(
            "vcube-pb.fig4",
            "libweft.bench.papers.vcube_pb_fig4",
            "Time to delivery, in trees of each publisher's own and in one fixed tree",
            f"{VCUBE_PB}, Figure 4",
        ),
        Listed(
            "vcube-pb.fig5",
            "libweft.bench.papers.vcube_pb_fig5",
            "Messages that causal order delays",
            f"{VCUBE_PB}, Figure 5",
        ),
    )
}


def list_figures() -> list[Listed]:
    return list(FIGURES.values())


def find(ids: Sequence[str]) -> list[Listed]:
    """Each of them once, in that order."""
    for name in ids:
        if name not in FIGURES:
            near = get_close_matches(name, FIGURES, n=1, cutoff=0.0)
            raise UsageError(f'no figure is called {name!r}; did you mean "{near[0]}"? there are: {", ".join(FIGURES)}')
    return [FIGURES[name] for name in dict.fromkeys(ids)]
