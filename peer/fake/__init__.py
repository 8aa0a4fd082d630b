"""Worlds for unit tests, shipped for the tests of users' own machines: one Env that records, and a wire that joins stacks.

`FakeEnv` (`libweft.peer.fake.env`) stands under one machine, and keeps all that the machine asked of it; nothing happens until
the test makes it happen: `receive` and `ask` of `libweft.peer.dispatch` hand it messages, `advance` lets time pass, and a
recorded request is settled by its `reply`. `FakeWire` (`libweft.peer.fake.wire`) joins whole stacks in one virtual time. It has
no latency, no loss and one queue: whatever is asked first happens first, and nothing happens inside a call on an Env. For
latency, faults and many nodes there is `libweft.peer.sim.simulator`.

    env = FakeEnv(me=1)                          wire = FakeWire(codec=True)
    machine = Gossip(env)                        a, b = wire.add(build), wire.add(build)
    receive(machine, 2, Rumour("hot"))           wire.connect(a, b)
    assert env.take() == [(3, Rumour("hot"))]    wire.run(5 * SECOND)

Bounds: a FakeEnv keeps all it records until it is taken. On the wire each machine's outbox to a peer has `limit` bytes,
under the policy of `libweft.peer.machine.admit`, and a run that does not come to rest in `STEPS` steps is an error.
"""
