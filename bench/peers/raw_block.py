"""LMCache's raw_block backend: its native device, driven as its core drives it, without the core's own work.

The core needs torch, of which PyPI has no build without CUDA's gigabytes; the device under it needs nothing. So the time
is a lower bound of the backend's. It has its fast paths: io_uring, O_DIRECT, registered buffers, slots written over in
place, batches as large as the core's. A put is a header and a payload for each block, then a checkpoint of the index:
blocks that are in none are lost at a restart.

The backend never syncs, so a put is not durable: what the drive still caches when power fails is lost, and what of it
was written is not found out, for payloads have no checksum. --sync adds the missing sync. A get reads the payloads into
the consumer's buffer past the page cache, and checks nothing.
"""

import json
import os
import sys
import zlib

import rounds

PAGE = 4096
BATCH_BLOCKS = 64  # the core's own
QUEUE_DEPTH = 256  # its default; 16 is not faster
INDEX_BYTES = 4 << 20


def expect_done(device, batch):
    done, errors = device.wait_iouring(batch)
    if errors or not all(done):
        raise rounds.Failure(f"input or output has failed: {errors}")


class RawBlock:
    def __init__(self, device, source, target, sync_fd):
        self.device, self.source, self.target, self.sync_fd = device, source, target, sync_fd
        self.index = {}
        self.checkpoints = 0

    def slot(self, block):
        return 2 * INDEX_BYTES + block * (PAGE + self.source.block_bytes)

    def put(self, number):
        source = self.source
        for first in range(0, source.blocks, BATCH_BLOCKS):
            offsets, buffers, sizes = [], [], []
            for block in range(first, min(source.blocks, first + BATCH_BLOCKS)):
                header = b"SLOT" + number.to_bytes(8, "little") + block.to_bytes(8, "little")
                offsets += [self.slot(block), self.slot(block) + PAGE]
                buffers += [header.ljust(PAGE, b"\0"), source.view(block)]
                sizes += [PAGE, source.block_bytes]
            expect_done(self.device, self.device.batched_write(offsets, buffers, sizes))
        self.index = {f"{number}-{block}": self.slot(block) for block in range(source.blocks)}
        self.checkpoint()

    def checkpoint(self):
        entries = {key: {"offset": offset, "size": self.source.block_bytes} for key, offset in self.index.items()}
        text = json.dumps(entries, separators=(",", ":")).encode()
        text_bytes = (len(text) + PAGE - 1) // PAGE * PAGE
        header = b"INDX" + self.checkpoints.to_bytes(8, "little") + zlib.crc32(text).to_bytes(4, "little")
        at = self.checkpoints % 2 * INDEX_BYTES
        self.checkpoints += 1
        expect_done(self.device, self.device.batched_write(
            [at + PAGE, at], [text.ljust(text_bytes, b"\0"), header.ljust(PAGE, b"\0")], [text_bytes, PAGE]))
        if self.sync_fd is not None:
            os.fdatasync(self.sync_fd)

    def get(self, number):
        target = self.target
        offsets = [self.index[f"{number}-{block}"] + PAGE for block in range(target.blocks)]
        views = [target.view(block) for block in range(target.blocks)]
        expect_done(self.device, self.device.batched_read(offsets, views, [target.block_bytes] * target.blocks))

    def forget(self, number):
        """Nothing: the next round writes over it."""


def write_extents(path, size):
    """A file that is like a raw device: no write allocates anything."""
    with open(path, "wb") as file:
        chunk = bytes(1 << 20)
        for _ in range(0, size, len(chunk)):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def registered(device, *buffers):
    try:
        device.register_fixed_buffers([buffer.address for buffer in buffers], [len(buffer.memory) for buffer in buffers])
    except RuntimeError as error:
        return f"its buffers are not registered: {error}"  # the limit on locked memory
    return "its buffers are registered"


def main():
    parser = rounds.parser(__doc__)
    parser.add_argument("--sync", action="store_true", help="sync the device at the end of a put")
    options = parser.parse_args()
    from lmcache_rust_raw_block_io import RawBlockDevice

    source = rounds.Buffer(options.blocks, options.block_bytes)
    target = rounds.Buffer(options.blocks, options.block_bytes)
    path = os.path.join(options.directory, "raw_block")
    write_extents(path, 2 * INDEX_BYTES + options.blocks * (PAGE + options.block_bytes))
    device = RawBlockDevice(path, True, use_odirect=True, alignment=PAGE, io_engine="io_uring",
                            iouring_queue_depth=QUEUE_DEPTH)
    text = registered(device, source, target)
    sync_fd = os.open(path, os.O_RDWR) if options.sync else None
    rounds.serve(RawBlock(device, source, target, sync_fd), source, target, text)


if __name__ == "__main__":
    sys.exit(rounds.run(main))
