"""Figures and tables of papers, measured again: the paper's value, ours, how far apart they may be, and a picture.

Each figure is one module of this folder and one entry of `FIGURES`, under an id `system.figure`. The table is enough to list
and to find figures: a figure's module is imported only when that figure is reproduced. `libweft.bench.papers.figure` says what
such a module holds, `figure_runs` makes its runs, `reproduction` goes from figure to figure, and `picture` draws.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

from libweft.peer.errors import UsageError


class Listed(NamedTuple):
    """A figure as the table lists it.

    `paper` is the citation of the paper that measured the figure or derived it, and None where no paper did. `source` says
    which figure, table or section of that paper it is, and what ours is compared with if not with the paper's own values.
    """

    id: str
    module: str
    title: str
    paper: str | None
    source: str

    @property
    def origin(self) -> str:
        """The paper and the figure of it, in one phrase."""
        return self.source if self.paper is None else f"{self.paper}, {self.source}"


PERCOLATION = "Network Robustness and Fragility (Callaway, Newman, Strogatz and Watts, Phys. Rev. Lett. 85, 2000)"
HYPARVIEW = "HyParView (Leitao, Pereira and Rodrigues, DSN 2007)"
GOSSIPSUB = "GossipSub (Vyzovitis et al., arXiv 2007.02754, 2020)"
PLUMTREE = "Epidemic Broadcast Trees (Leitao, Pereira and Rodrigues, SRDS 2007)"
STUDY = "A Study on Publish-Subscribe Systems over Overlay Networks (Duarte, Almeida and Fona, 2022)"
VCUBE_PS = "VCube-PS (de Araujo, Arantes, Duarte, Rodrigues and Sens, JPDC 2018)"
VCUBE_PB = "VCube-PB (de Araujo, Rodrigues, Arantes, Duarte and Sens, SBRC 2017)"

FIGURES: dict[str, Listed] = {
    figure.id: figure
    for figure in (
        Listed(
            "flood.percolation",
            "libweft.bench.papers.flood_percolation",
            "The first flood after a mass crash, on a random 5-regular graph",
            PERCOLATION,
            "the theory of site percolation, which the first message after failures in Epidemic Broadcast Trees follows",
        ),
        Listed(
            "hyparview.reliability",
            "libweft.bench.papers.hyparview_reliability",
            "Who is reached after a mass crash, mean of 1,000 messages",
            HYPARVIEW,
            "its figure of reliability after massive failures",
        ),
        Listed(
            "hyparview.healing",
            "libweft.bench.papers.hyparview_healing",
            "Cycles until messages reach all survivors of a mass crash",
            HYPARVIEW,
            "its figure of healing times",
        ),
        Listed(
            "hyparview.graph",
            "libweft.bench.papers.hyparview_graph",
            "The graph of the active views after 50 cycles",
            HYPARVIEW,
            "its table of graph properties and in-degrees",
        ),
        Listed(
            "hyparview.percolation",
            "libweft.bench.papers.hyparview_percolation",
            "The first flood after a mass crash, on HyParView's views",
            HYPARVIEW,
            "against the theory of flood.percolation",
        ),
        Listed(
            "causal.compare",
            "libweft.bench.papers.causal_compare",
            "What causal order costs, in bytes and in time",
            None,
            "no paper: causal order over three routers, and VCube-PS (de Araujo et al., JPDC 2018), in the same discussion",
        ),
        Listed(
            "gossipsub.attacks",
            "libweft.bench.papers.gossipsub_attacks",
            "Honest messages among sybils, hardened and plain",
            GOSSIPSUB,
            "its attacks, of which the runs here are shorter",
        ),
        Listed(
            "plumtree.rmr",
            "libweft.bench.papers.plumtree_rmr",
            "Redundancy of the first messages after the joins",
            PLUMTREE,
            "its figure of redundancy in a stable network",
        ),
        Listed(
            "plumtree.ldh",
            "libweft.bench.papers.plumtree_ldh",
            "The last delivery hop of a settled tree",
            PLUMTREE,
            "its figure of the last hop in a stable network",
        ),
        Listed(
            "plumtree.crash",
            "libweft.bench.papers.plumtree_crash",
            "Redundancy while overlay and tree mend after a mass crash",
            PLUMTREE,
            "its figures of massive failures",
        ),
        Listed(
            "plumtree.churn",
            "libweft.bench.papers.plumtree_churn",
            "Fifty crashes a cycle, for a hundred cycles",
            PLUMTREE,
            "its figures of constant failures",
        ),
        Listed(
            "study.reliability",
            "libweft.bench.papers.study_reliability",
            "Subscribers reached, against the rate and the size of messages",
            STUDY,
            "section 4.1, whose results the paper leaves empty",
        ),
        Listed(
            "study.redundancy",
            "libweft.bench.papers.study_redundancy",
            "Copies of a message, against the rate and the size of messages",
            STUDY,
            "section 4.2, whose results the paper leaves empty",
        ),
        Listed(
            "study.latency",
            "libweft.bench.papers.study_latency",
            "Time to subscribers, against the rate and the size of messages",
            STUDY,
            "section 4.3, whose results the paper leaves empty",
        ),
        Listed(
            "vcube-ps.fig4a",
            "libweft.bench.papers.vcube_ps_fig4a",
            "Time to a subscriber, one publisher and one message",
            VCUBE_PS,
            "Figure 4a, against the authors' own program",
        ),
        Listed(
            "vcube-ps.fig4b",
            "libweft.bench.papers.vcube_ps_fig4b",
            "PUB messages of one publication",
            VCUBE_PS,
            "Figure 4b, against the authors' own program",
        ),
        Listed(
            "vcube-ps.fig5",
            "libweft.bench.papers.vcube_ps_fig5",
            "Time to a subscriber, many publishers",
            VCUBE_PS,
            "Figure 5, against the authors' own program",
        ),
        Listed(
            "vcube-ps.table1",
            "libweft.bench.papers.vcube_ps_table1",
            "Mean length of send queues, all publish",
            VCUBE_PS,
            "Table 1, against the authors' own program",
        ),
        Listed(
            "vcube-ps.fig7",
            "libweft.bench.papers.vcube_ps_fig7",
            "Time to a subscriber, many topics, some of them popular",
            VCUBE_PS,
            "Figure 7, against the authors' own program",
        ),
        Listed(
            "vcube-ps.fig8a",
            "libweft.bench.papers.vcube_ps_fig8a",
            "Time to a subscriber while subscribers change places",
            VCUBE_PS,
            "Figure 8a, of which the authors' program has no run",
        ),
        Listed(
            "vcube-ps.fig8b",
            "libweft.bench.papers.vcube_ps_fig8b",
            "Time to a subscriber, ever more subscribers changing places",
            VCUBE_PS,
            "Figure 8b, of which the authors' program has no run",
        ),
        Listed(
            "vcube-ps.fig9",
            "libweft.bench.papers.vcube_ps_fig9",
            "Time to a subscriber, trees of brokers",
            VCUBE_PS,
            "Figure 9, against the authors' own program",
        ),
        Listed(
            "vcube-ps.fig6",
            "libweft.bench.papers.vcube_ps_fig6",
            "Causal barriers of a discussion, and how long they hold back",
            VCUBE_PS,
            "Figure 6 and the text after it, against the authors' own program",
        ),
        Listed(
            "vcube-pb.fig3",
            "libweft.bench.papers.vcube_pb_fig3",
            "Hops until subscribers have the message",
            VCUBE_PB,
            "Figure 3, against the hypercube's arithmetic",
        ),
        Listed(
            "vcube-pb.fig4",
            "libweft.bench.papers.vcube_pb_fig4",
            "Time to delivery, in trees of each publisher's own and in one fixed tree",
            VCUBE_PB,
            "Figure 4",
        ),
        Listed(
            "vcube-pb.fig5",
            "libweft.bench.papers.vcube_pb_fig5",
            "Messages that causal order delays",
            VCUBE_PB,
            "Figure 5",
        ),
    )
}


def list_figures() -> list[Listed]:
    """Return all figures, in the order of the table."""
    return list(FIGURES.values())


def find(names: Sequence[str]) -> list[Listed]:
    """Return the figures that `names` name, each once; a name is an id, or a shell pattern of ids such as `plumtree.*`.

    Figures come in the order of `names`, and the figures of one pattern in the order of the table. A name that no figure has
    raises a `UsageError`.
    """
    return [FIGURES[id] for id in dict.fromkeys(id for name in names for id in _matching(name))]


def is_pattern(name: str) -> bool:
    """Return whether `name` has a wildcard of the shell. No id has one."""
    return any(letter in name for letter in "*?[")


def group_by_paper(figures: Sequence[Listed]) -> dict[str | None, list[Listed]]:
    """Return `figures` under their papers, which come in the order of their first figures."""
    groups: dict[str | None, list[Listed]] = {}
    for figure in figures:
        groups.setdefault(figure.paper, []).append(figure)
    return groups


def _matching(name: str) -> list[str]:
    if name in FIGURES:
        return [name]
    if not is_pattern(name):
        raise UsageError(_unknown_id(name))
    if not (found := [id for id in FIGURES if fnmatchcase(id, name)]):
        raise UsageError(_unmatched_pattern(name))
    return found


def _unknown_id(name: str) -> str:
    near = get_close_matches(name, FIGURES, n=1, cutoff=0.0)
    text = f'no figure is called {name!r:.80}; did you mean "{near[0]}"? '
    if os.path.exists(name):  # plumtree.* in a folder of pictures becomes plumtree.rmr.png
        text += "a file has this name: if the shell made it from a pattern, put the pattern in quotes; "
    return text + f"there are: {', '.join(FIGURES)}; weft reproduce --list shows their titles"


def _unmatched_pattern(pattern: str) -> str:
    letters = "".join(letter for letter in pattern if letter not in "*?[]!")  # no id has a wildcard
    near = get_close_matches(letters, FIGURES, n=3, cutoff=0.4)
    closest = f"the closest are {', '.join(near)}; " if near else ""
    return f"no figure matches {pattern!r:.80}; {closest}weft reproduce --list shows all figures"
