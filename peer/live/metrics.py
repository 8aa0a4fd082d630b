"""What an operator watches, in the text format of Prometheus (version 0.0.4), and a server of one page that shows it.

    port = await nursery.start(serve_metrics, host, driver)        # http://127.0.0.1:PORT/metrics

Figures are read when they are asked for: nothing is counted for their sake. A count that nothing happened to is 0 rather
than absent, so that a rate can be taken from the first scrape on.

Asks below: `libweft.peer.live.host`, and `libweft.peer.live.driver` where a stack runs. Promises above: what is sent to the
server costs one connection at most. It has no encryption and no password, so its address is the loopback's unless you say
otherwise.
Bounds: CONNECTIONS at once, the others wait in the kernel; each has REQUEST bytes and TIME_S seconds for all.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import trio

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import peer_text
from libweft.peer.live.driver import Driver
from libweft.peer.live.host import Host

REQUEST = 8 << 10
TIME_S = 5.0
CONNECTIONS = 16
PAGE = "/metrics"

COUNTS = {
    "dials": "Dials begun.",
    "dials_failed": "Dials that came to no link.",
    "accepted": "Connections of others that became links.",
    "refused": "Connections of others closed for want of room, or from a denied network.",
    "handshakes_failed": "Connections of others that broke or were unwelcome before they became links.",
    "links_up": "Links that were identified and told of.",
    "links_down": "Links told of that went down.",
}
"""What is known of the keys of `Host.counts`; others are shown too."""

_BORN = time.time()
_BORN_MONOTONIC = time.monotonic()

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.[01]")
_FIELD = re.compile(rf"{_TOKEN}:[\t -~\x80-\xff]*")
_END = re.compile(rb"\r?\n\r?\n")


class Family(NamedTuple):
    """One metric: its samples differ in their labels."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[dict[str, str], float], ...]


def render(host: Host, driver: Driver | None = None) -> str:
    """All that is known now; without a driver, what belongs to a stack is left out."""
    families = [*_of_program(host), *_of_host(host), *_of_counts(host)]
    if driver is not None:
        families += _of_driver(driver)
    return "".join(line + "\n" for family in families for line in _lines(family))


def _of_program(host: Host) -> Iterator[Family]:
    labels = {"peer": peer_text(host.peer), "agent": host.config.agent}
    yield Family("weft_host_info", "gauge", "Which host this is.", ((labels, 1),))
    yield _gauge("weft_start_time_seconds", "When this program loaded its metrics, in seconds since 1970.", _BORN)
    yield _gauge("weft_uptime_seconds", "Seconds since then, by a clock that is never set.", time.monotonic() - _BORN_MONOTONIC)


def _of_host(host: Host) -> Iterator[Family]:
    links = list(host.links.values())
    outbound = sum(link.outbound for link in links)
    ways = (({"direction": "inbound"}, len(links) - outbound), ({"direction": "outbound"}, outbound))
    yield _gauge("weft_links", "Links to peers.", len(links))
    yield Family("weft_links_by_direction", "gauge", "Links to peers, by who dialled.", ways)
    yield _gauge("weft_streams", "Streams on all links.", sum(len(link.streams) for link in links))
    yield _gauge("weft_handshakes", "Handshakes under way.", host.handshakes)
    yield _gauge("weft_dials", "Peers that are being dialled.", host.dialling)
    yield _gauge("weft_unsent_bytes", "Bytes on their way from the muxers to the kernel.", sum(link.unsent for link in links))
    yield _gauge("weft_known_peers", "Peers whose addresses are remembered.", len(host.known))


def _of_counts(host: Host) -> Iterator[Family]:
    for key in dict.fromkeys([*COUNTS, *sorted(host.counts)]):
        name = f"weft_{re.sub('[^a-zA-Z0-9_]', '_', key)}_total"
        yield Family(name, "counter", COUNTS.get(key, f"The host's count of {key}."), (({}, host.counts[key]),))


def _of_driver(driver: Driver) -> Iterator[Family]:
    queued = sum(outlet.queued for env in driver.envs for outlet in env.outlets.values())
    yield _gauge("weft_machines", "Machines of the stack.", len(driver.envs))
    yield _gauge("weft_outbox_bytes", "Bytes of messages that wait in the outboxes of links.", queued)
    yield _gauge("weft_parked_bytes", "Bytes of messages that wait for a dial.", driver.parked)
    yield _gauge("weft_timers", "Timers that are set.", driver.timers)
    yield _gauge("weft_requests", "Requests under way.", driver.requests)
    yield _gauge("weft_stack_running", "1, or 0 once the stack has stopped or crashed.", not driver.stopped)


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, (({}, value),))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.samples:
        pairs = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
        yield f"{family.name}{{{pairs}}} {_number(value)}" if pairs else f"{family.name} {_number(value)}"


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


async def serve_metrics(
    host: Host,
    driver: Driver | None,
    address: str = "127.0.0.1",
    port: int = 0,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer GET /metrics until cancelled; `nursery.start` gives the port."""
    if not 0 <= port < 1 << 16:
        raise UsageError(f"metrics are served at a port below 65536, not at {port}")  # getaddrinfo takes the rest modulo
    try:
        ipaddress.ip_address(address)
        (listener,) = await trio.open_tcp_listeners(port, host=address)
    except ValueError:
        raise UsageError(f"metrics are served at an IP address, and {address!r} is none") from None
    except OSError as error:
        raise UsageError(f"metrics cannot be served at {address} port {port}: {error}") from None
    task_status.started(listener.socket.getsockname()[1])
    room = trio.Semaphore(CONNECTIONS)
    async with listener:
        await trio.serve_listeners(partial(_connection, host, driver, room), [_Gate(listener, room)])


class _Gate(trio.abc.Listener[trio.SocketStream]):
    """Accepts only when there is room."""

    def __init__(self, listener: trio.SocketListener, room: trio.Semaphore) -> None:
        self._listener = listener
        self._room = room

    async def accept(self) -> trio.SocketStream:
        await self._room.acquire()
        try:
            return await self._listener.accept()
        except BaseException:
            self._room.release()
            raise

    async def aclose(self) -> None:
        await self._listener.aclose()


async def _connection(host: Host, driver: Driver | None, room: trio.Semaphore, stream: trio.SocketStream) -> None:
    try:
        with trio.move_on_after(TIME_S):
            async with stream:
                if request := await _head(stream):
                    await stream.send_all(_answer(request, host, driver))
                    await _linger(stream)
    except trio.BrokenResourceError:
        pass  # who asked is gone
    finally:
        room.release()


async def _head(stream: trio.SocketStream) -> bytes:
    """The request line and its fields, or as much as came of them."""
    head = b""
    while len(head) <= REQUEST and not _END.search(head):
        data = await stream.receive_some(REQUEST + 1 - len(head))
        if not data:
            break
        head += data
    return head


async def _linger(stream: trio.SocketStream) -> None:
    """To close with something unread would make the kernel cut off the answer."""
    await stream.send_eof()
    while await stream.receive_some():
        pass


def _answer(request: bytes, host: Host, driver: Driver | None) -> bytes:
    status = _judged(request)
    text, kind, more = f"{status} {_REASONS[status]}\n", "text/plain; charset=utf-8", ""
    if status == 200:
        text, kind = render(host, driver), "text/plain; version=0.0.4; charset=utf-8"
    elif status == 405:
        more = "Allow: GET\r\n"
    body = text.encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def _judged(request: bytes) -> int:
    end = _END.search(request)
    if end is None or len(request) > REQUEST:
        return 400
    first, *fields = [line.removesuffix("\r") for line in request[: end.start()].decode("latin-1").split("\n")]
    asked = _REQUEST_LINE.fullmatch(first)
    if asked is None or not all(map(_FIELD.fullmatch, fields)):
        return 400
    hosts = sum(field.lower().startswith("host:") for field in fields)
    if hosts > 1 or (not hosts and first.endswith("1.1")):
        return 400
    method, target = asked.groups()
    if target.partition("?")[0] != PAGE:
        return 404
    return 200 if method == "GET" else 405
