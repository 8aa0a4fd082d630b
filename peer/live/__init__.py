"""The live world: sockets, links, hosts, and the driver that runs a stack of machines on them with trio."""
