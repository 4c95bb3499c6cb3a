"""What the peers' scripts share: their command line, buffers, and one line of figures a round.

A script prints `ready TEXT` once its store is up and warm, TEXT being what else there is to know. Each line that it then
reads is one more round, answered with `round PUT GET`: the seconds to put a prompt's blocks and to read them back. What
ends it early is `error REASON`; else it ends with its input. By hand:

    yes | head -5 | build/peers/bin/python bench/peers/NAME.py --blocks 47 --block-bytes 1474560 --directory /var/tmp
"""

import argparse
import ctypes
import mmap
import sys
import time

_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Failure(Exception):
    """Why there are no figures, or no more."""


def parser(description):
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--blocks", type=int, required=True)
    found.add_argument("--block-bytes", type=int, required=True)
    found.add_argument("--directory", required=True, help="for its files; what is made there is left")
    return found


class Buffer:
    """Page-aligned memory for all blocks of a round, every page touched."""

    def __init__(self, blocks, block_bytes):
        self.blocks, self.block_bytes = blocks, block_bytes
        self.memory = mmap.mmap(-1, blocks * block_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.addresses = [self.address + block * block_bytes for block in range(blocks)]
        self.clear()

    def view(self, block):
        return memoryview(self.memory)[block * self.block_bytes:(block + 1) * self.block_bytes]

    def clear(self):
        ctypes.memset(self.address, 0, len(self.memory))

    def fill(self, number):
        """Blocks that no other block of any round equals."""
        for block, address in enumerate(self.addresses):
            ctypes.memset(address, (number + block) % 255 + 1, self.block_bytes)
            self.view(block)[:16] = number.to_bytes(8, "little") + block.to_bytes(8, "little")

    def equals(self, other):
        return len(self.memory) == len(other.memory) and _LIBC.memcmp(self.address, other.address, len(self.memory)) == 0


def seconds(work, number):
    begin = time.perf_counter()
    work(number)
    return time.perf_counter() - begin


def serve(peer, source, target, text, warm_up=2):
    """Rounds until the input ends: put(number) and get(number) are timed, forget(number) is not."""

    def one(number):
        source.fill(number)
        target.clear()
        put, get = seconds(peer.put, number), seconds(peer.get, number)
        if not source.equals(target):
            raise Failure("the bytes read are not the bytes written")
        peer.forget(number)
        return put, get

    for number in range(warm_up):
        one(number)
    print("ready", text, flush=True)
    for number, _ in enumerate(sys.stdin, warm_up):
        print("round %.6f %.6f" % one(number), flush=True)


def run(main):
    """The exit status of a script whose work is `main`."""
    try:
        main()
    except (Failure, ImportError, OSError, RuntimeError) as failure:
        print("error", str(failure).replace("\n", " "), flush=True)
        return 1
    return 0
