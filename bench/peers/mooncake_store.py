"""Mooncake Store: a master, and a client that holds the blocks in a memory segment of its own.

That is its fastest way on one machine: after one call to the master per batch, a block is copied between the segment and
the consumer's registered buffer inside this process; a segment elsewhere would be read over TCP. Every page of the
segment has been written before the first round. The blocks go with this process, are not on any drive, and are not
checked when read.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

import rounds

SEGMENT_BYTES = 1 << 30
SCRATCH_BYTES = 64 << 20
MASTER_SECONDS = 20
PR_SET_PDEATHSIG = 1


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_master(directory):
    """The master, answering; it goes with us, however that is."""
    port, metrics = free_ports(2)
    libc = ctypes.CDLL(None)
    program = os.path.join(os.path.dirname(sys.executable), "mooncake_master")
    with open(os.path.join(directory, "mooncake_master.log"), "wb") as log:
        master = subprocess.Popen([program, "--rpc_address=127.0.0.1", f"--rpc_port={port}", "--metrics_host=127.0.0.1",
                                   f"--metrics_port={metrics}", "--enable_metric_reporting=false"],
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    deadline = time.monotonic() + MASTER_SECONDS
    while time.monotonic() < deadline and master.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return master, port
        except OSError:
            time.sleep(0.05)
    master.kill()
    raise rounds.Failure(f"mooncake_master does not answer; see {log.name}")


class Mooncake:
    def __init__(self, store, source, target):
        self.store, self.source, self.target = store, source, target
        self.sizes = [source.block_bytes] * source.blocks

    def keys(self, number):
        return [f"{number}-{block}" for block in range(self.source.blocks)]

    def put(self, number):
        if any(self.store.batch_put_from(self.keys(number), self.source.addresses, self.sizes)):
            raise rounds.Failure("not every block was put")

    def get(self, number):
        if self.store.batch_get_into(self.keys(number), self.target.addresses, self.sizes) != self.sizes:
            raise rounds.Failure("not every block was read")

    def forget(self, number):
        if any(self.store.batch_remove(self.keys(number), True)):
            raise rounds.Failure("not every block was removed")

    def touch_segment(self):
        count = int(SEGMENT_BYTES * 0.9) // (self.source.blocks * self.source.block_bytes)  # above that it evicts
        numbers = [f"warm{number}" for number in range(count)]
        for number in numbers:
            self.put(number)
        for number in numbers:
            self.forget(number)


def main():
    options = rounds.parser(__doc__).parse_args()
    from mooncake.store import MooncakeDistributedStore

    source = rounds.Buffer(options.blocks, options.block_bytes)
    target = rounds.Buffer(options.blocks, options.block_bytes)
    master, port = start_master(options.directory)
    try:
        store = MooncakeDistributedStore()
        if store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT_BYTES, SCRATCH_BYTES, "tcp", "", f"127.0.0.1:{port}") != 0:
            raise rounds.Failure("the client does not start")
        for buffer in (source, target):
            if store.register_buffer(buffer.address, len(buffer.memory)) != 0:
                raise rounds.Failure("a buffer is not registered")
        peer = Mooncake(store, source, target)
        peer.touch_segment()
        rounds.serve(peer, source, target, "its segment is in the client's process")
        store.close()
    finally:
        master.terminate()
        master.wait()


if __name__ == "__main__":
    sys.exit(rounds.run(main))
