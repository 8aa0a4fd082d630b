"""Traces of live peers in one place: each peer sends its rows to a collector, which writes them as one run.

    peer:       Tracer -> Buffer -> sender    \\
                                                >  /weft/collect/1.0.0, one stream a peer
    collector:  folder <- accounts <- collector /

`messages` is the wire, `clock` what round trips tell of a peer's clock, `buffer` what a peer holds, `peer_account` what a
collector knows of a peer; all without IO. `sender` and `collector` do the IO of either side, `folder` writes the files.

A peer greets with its epoch. The collector asks for its time a few times, then says up to which batch it has written;
only then the peer sends batches, numbered from 1 in each epoch, and keeps each until it is told that it was written. The
part that holds a batch holds its number too, so a collector that was killed asks for what it lacks, and for nothing twice.

Rows carry no node: they are of the peer that the link authenticated, and of nobody else.
"""
