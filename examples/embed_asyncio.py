"""Two hosts in a program of asyncio: one pings the other by a protocol of its own."""

import asyncio
from contextlib import asynccontextmanager

from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.embed import in_asyncio
from libweft.peer.live.host import open_host

ECHO = "/example/echo/1.0.0"


async def echo(stream):
    while data := await stream.receive_some():
        await stream.send_all(data)


@asynccontextmanager
async def two_hosts():
    here = ["/ip4/127.0.0.1/tcp/0"]
    async with open_host(Identity.new(), listen=here) as server, open_host(Identity.new()) as client:
        server.handle(ECHO, echo)
        yield server, client


async def ask(client, address, text):
    async with await client.open_stream(address, [ECHO]) as stream:
        await stream.send_all(text)
        return await stream.receive_some()


async def main():
    async with in_asyncio(two_hosts) as guest:
        server, client = guest.value
        answers = await asyncio.gather(*(guest.call(ask, client, server.addresses[0], b"ping %d" % n) for n in range(3)))
    print(b", ".join(answers).decode())


asyncio.run(main())
