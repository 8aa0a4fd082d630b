"""The contract of a machine, libp2p's protocols, and the worlds in which a machine runs.

A machine is a protocol without IO: it takes messages, timers and links that go up and down, and acts only by calls on its `Env`.
The same machine runs on real sockets, in the simulator and in a unit test, because each of these worlds has an Env of its own.

The modules of this package are the contract, which all worlds share:

    machine         Machine, Env, messages, lanes, links
    datagram        the same for protocols over UDP
    errors          errors by who is at fault: the caller (UsageError) or a peer (PeerError)
    codec           messages to bytes and back, as typed MessagePack
    dispatch        which machine of a stack gets a message, answers a request or is notified of a link

The folders, each of which imports only the contract and the folders above it in this list:

    libp2p          libp2p's protocols, without IO: ids, addresses, frames, encryption, streams
    trace           the rows of a run, in one schema for simulated and live runs, and their files
    fake            worlds for unit tests: one machine on a recording Env, or whole stacks on a wire
    sim             the simulator: thousands of nodes in virtual time, with latencies and faults
    live            the live world, on trio: sockets, links, the host, and the driver that runs a stack on a host

`overlays`, `pubsub` and `bench` stand above this package. Import from its modules: the package itself exports nothing, so that
importing it costs nothing.
"""

if __name__ != "libweft.peer":
    raise ImportError("import libweft.peer, not peer: the second name would load every module twice")
