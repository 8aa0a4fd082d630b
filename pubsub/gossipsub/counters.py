"""What one peer did, counted: in each topic for P1 to P4, and as a whole for P7. See `libweft.pubsub.gossipsub.score`.

Counters decay at each tick and are clipped at their caps. A peer's mesh deliveries are judged once it has been in the mesh
for longer than the activation, so that whoever was just grafted is not blamed for what it had no time to bring.
"""

from __future__ import annotations

from libweft.pubsub.gossipsub.score_config import TopicScore

UNSET = -1


class Counters:
    """Of one peer in one topic. `watches`: mesh deliveries count; `since` when, UNSET until the next tick."""

    __slots__ = ("active", "failure", "first", "grafted", "in_mesh", "invalid", "mesh", "mesh_time", "score", "since", "watches")

    def __init__(self, score: TopicScore) -> None:
        self.score = score
        self.watches = _counts_mesh(score)
        self.in_mesh = False
        self.active = False
        self.grafted = 0
        self.since = UNSET
        self.mesh_time = 0
        self.first = 0.0
        self.mesh = 0.0
        self.failure = 0.0
        self.invalid = 0.0

    def parts(self) -> tuple[float, float, float, float, float]:
        """P1 to P4, weighted."""
        score = self.score
        time = 0.0
        if self.in_mesh and score.time_in_mesh_weight:
            time = min(self.mesh_time // score.time_in_mesh_quantum, score.time_in_mesh_cap) * score.time_in_mesh_weight
        return (
            score.topic_weight * time,
            score.topic_weight * score.first_deliveries_weight * self.first,
            score.topic_weight * score.mesh_deliveries_weight * self._deficit() ** 2 if self.active else 0.0,
            score.topic_weight * score.mesh_failure_weight * self.failure,
            score.topic_weight * score.invalid_weight * self.invalid**2,
        )

    def enter_mesh(self, now: int) -> None:
        self.in_mesh, self.active = True, False
        self.grafted = self.since = now
        self.mesh_time = 0

    def leave_mesh(self, now: int) -> None:
        """A deficit becomes P3b, though no tick has come since it began to count."""
        if self._judged(now):
            self.failure += self._deficit() ** 2
        self.in_mesh = self.active = False

    def first_delivery(self) -> None:
        self.first = min(self.first + 1, self.score.first_deliveries_cap)
        self.mesh_delivery()

    def mesh_delivery(self) -> None:
        if self.in_mesh and self.watches:
            self.mesh = min(self.mesh + 1, self.score.mesh_deliveries_cap)

    def tick(self, now: int, to_zero: float) -> None:
        score = self.score
        self.first = decayed(self.first, score.first_deliveries_decay, to_zero)
        self.mesh = decayed(self.mesh, score.mesh_deliveries_decay, to_zero)
        self.failure = decayed(self.failure, score.mesh_failure_decay, to_zero)
        self.invalid = decayed(self.invalid, score.invalid_decay, to_zero)
        if self.in_mesh:
            self.mesh_time = now - self.grafted
            if self.since == UNSET:
                self.since = now
            self.active = self._judged(now)

    def change(self, score: TopicScore) -> None:
        """Where mesh deliveries were not counted before, nobody has a deficit before the activation has passed anew."""
        if _counts_mesh(score) and not self.watches:
            self.since, self.active = UNSET, False
        self.score, self.watches = score, _counts_mesh(score)
        self.first = min(self.first, score.first_deliveries_cap)
        self.mesh = min(self.mesh, score.mesh_deliveries_cap)

    @property
    def idle(self) -> bool:
        return not (self.in_mesh or self.first or self.mesh or self.failure or self.invalid)

    def _judged(self, now: int) -> bool:
        return self.in_mesh and self.since != UNSET and now - self.since > self.score.mesh_deliveries_activation

    def _deficit(self) -> float:
        return max(0.0, self.score.mesh_deliveries_threshold - self.mesh)


class Stats:
    """Of one peer. `own` is its score without P5 and P6, which change without its doing; None after a change for the worse.

    After a change for the better it is `risen`: the score is that at least.
    """

    __slots__ = ("behaviour", "connected", "expires", "own", "risen", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, Counters] = {}
        self.behaviour = 0.0
        self.connected = True
        self.expires = 0
        self.own: float | None = 0.0
        self.risen = False

    def tick(self, now: int, behaviour_decay: float, to_zero: float) -> None:
        self.own = None
        self.behaviour = decayed(self.behaviour, behaviour_decay, to_zero)
        idle = []
        for topic, counters in self.topics.items():
            counters.tick(now, to_zero)
            if counters.idle:
                idle.append(topic)
        for topic in idle:
            del self.topics[topic]


def decayed(value: float, factor: float, to_zero: float) -> float:
    value *= factor
    return value if value >= to_zero else 0.0


def _counts_mesh(score: TopicScore) -> bool:
    return bool(score.mesh_deliveries_weight or score.mesh_failure_weight)
