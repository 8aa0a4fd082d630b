"""Real servers of the PyPI package `kademlia`, in one process: `python -m tests.interop.kademlia_servers COUNT KSIZE`.

It prints one line when all have joined each other, a list of their ports, and then one for each line that it reads. All lines are
Python literals: `("set", server, key, value)`, `("get", server, key)`, `("has", server, key)` for what that server itself keeps,
`("add", host, port)` for one more, which joins there. The package's log goes to stderr.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from ast import literal_eval
from typing import Any

from kademlia.network import Server  # type: ignore[import-not-found,import-untyped,unused-ignore]
from kademlia.utils import digest  # type: ignore[import-not-found,import-untyped,unused-ignore]

HERE = "127.0.0.1"


async def started(ksize: int, place: tuple[str, int] | None) -> Server:
    server = Server(ksize=ksize)
    await server.listen(0, HERE)
    if place is not None:
        await server.bootstrap([place])
    return server


def port(server: Server) -> int:
    return int(server.transport.get_extra_info("sockname")[1])


async def answer(servers: list[Server], ksize: int, words: tuple[Any, ...]) -> Any:
    match words:
        case ("set", number, key, value):
            return await servers[number].set(key, value)
        case ("get", number, key):
            return await servers[number].get(key)
        case ("has", number, key):
            return servers[number].storage.get(digest(key))
        case ("add", host, where):
            servers.append(await started(ksize, (host, where)))
            return port(servers[-1])
    raise ValueError(words)


async def main(count: int, ksize: int) -> None:
    servers = [await started(ksize, None)]
    for _ in range(count - 1):
        servers.append(await started(ksize, (HERE, port(servers[0]))))
    print([port(server) for server in servers], flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(repr(await answer(servers, ksize, literal_eval(line))), flush=True)
    for server in servers:
        server.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
