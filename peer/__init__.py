"""weft: publish/subscribe among peers. Each protocol is a machine without IO, run live or in a simulator.

The map of layers, from the top; each imports only what is below it:

    bench      scenarios, runs, measures, and the command `weft`
    pubsub     routers: how a publication spreads; interests, validation, delivery
    overlays   who is a neighbour of whom
    peer       this package: the contract, and the worlds that a machine can live in

Inside peer, from the bottom:

    errors                     whose fault it is: the caller's (UsageError) or a peer's (PeerError)
    machine                    the contract: Machine, Env, messages, lanes, links
    codec, dispatch            messages to bytes and back; who gets a message, who hears of a link
    trace                      what happened, as rows of one schema
    latency, faults            the simulated network and what goes wrong in it, as data
    calendar, network          the simulator: the queue of events, and how copies travel
    sim_env, sim_links         ... what a machine sees, links from dial to close
    sim_faults, sim            ... what faults do to a link, and the nodes and the loop
    fake                       a fake world, for tests of one machine or of two on a wire
    ids, address, records      who a peer is, where it is, and its own signed word on that
    frame, multistream, pnet   libp2p's layers on bytes alone: lengths, protocols, private networks,
    noise, yamux               ... encryption, streams
    transport, link            sockets; one encrypted link and its streams
    host, identify, ping       links to many peers
    outbox, store, driver      the Env on a host
    datagram, sim_datagram     protocols over UDP: their Env on a socket, and in the simulator
    embed, metrics             a host in a program of another kind; what an operator watches

Import from the modules: this package re-exports nothing, so that importing it costs nothing.
"""

if __name__ != "libweft.peer":
    raise ImportError("import libweft.peer, not peer: the second name would load every module twice")
