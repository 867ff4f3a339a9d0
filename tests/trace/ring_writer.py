"""Writes valid rings for tests; the product's only writer is the hook."""

from greyhound.bench.ring_writer import RingWriter, make_records

__all__ = ["RingWriter", "make_records"]
