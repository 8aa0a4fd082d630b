"""Two hosts in a program without an event loop, each in a thread of its own: one pings the other by a protocol of its own."""

from functools import partial

from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.embed import in_thread
from libweft.peer.live.host import open_host

ECHO = "/example/echo/1.0.0"


async def echo(stream):
    while data := await stream.receive_some():
        await stream.send_all(data)


async def serve(host):
    host.handle(ECHO, echo)
    return host.addresses[0]


async def pings(host, address, count):
    async with await host.open_stream(address, [ECHO]) as stream:
        for number in range(count):
            await stream.send_all(b"ping %d" % number)
            yield (await stream.receive_some()).decode()


listening = partial(open_host, Identity.new(), listen=["/ip4/127.0.0.1/tcp/0"])
with in_thread(listening) as server, in_thread(partial(open_host, Identity.new())) as client:
    address = server.call(serve, server.value, timeout=10)
    print(*client.stream(pings, client.value, address, 3), sep=", ")
