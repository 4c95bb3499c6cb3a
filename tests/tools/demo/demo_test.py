#!/usr/bin/env python3
"""tools/demo/demo on the tiny model, and against a daemon that caches wrongly or not at all: it must notice."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEMO = pathlib.Path(__file__).resolve().parents[3] / "tools/demo/demo"
KVIST, KVISTD, WRITE_TINY_GGUF = (os.environ[name] for name in ("KVIST", "KVISTD", "WRITE_TINY_GGUF"))
# Stands in for kvist: runs it without its store, or changes what it answered.
NO_STORE = """#!/bin/sh
[ "$1" = generate ] || exec "{kvist}" "$@"
exec "{kvist}" "$@" --no-cache-read
"""
OTHER_ANSWER = """#!/bin/sh
[ "$1" = generate ] || exec "{kvist}" "$@"
"{kvist}" "$@" >"$0.out" || exit
if grep -q '"cached_tokens": 0' "$0.out"; then cat "$0.out"; else sed 's/"text": "/&not /' "$0.out"; fi
"""
FAILING = """#!/bin/sh
[ "$1" = generate ] || exec "{kvist}" "$@"
exit 1
"""


class Demo(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="kvist-demo-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.model = self.folder / "tiny.gguf"
        subprocess.run([WRITE_TINY_GGUF, self.model, "2048"], check=True)
        (self.folder / "text").write_text("It was a bright cold day, and the clocks were striking. " * 12)
        self.parent = pathlib.Path("/var/tmp")

    def demo(self, kvist=KVIST):
        return subprocess.run([sys.executable, DEMO, "--kvist", kvist, "--kvistd", KVISTD, "--model", self.model,
                               "--text", self.folder / "text", "--block-tokens", "16", "--max-tokens", "8"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False)

    def with_stand_in(self, script):
        stand_in = self.folder / "kvist"
        stand_in.write_text(script.format(kvist=KVIST))
        stand_in.chmod(0o755)
        return self.demo(stand_in)

    def left_over(self):
        """Processes that use a demo's folder, and the folders."""
        folders = {str(path) for path in self.parent.glob("kvist-demo-*") if path.is_dir()}
        return folders

    def test_passes_and_leaves_nothing(self):
        before = self.left_over()
        done = self.demo()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 9, done.stdout)
        self.assertEqual([line[53:63].strip() for line in lines[1:]],
                         ["-", "dram", "-", "dram", "nvme", "nvme", "shared", "-"])
        self.assertEqual(self.left_over() - before, set())

    def test_fails_where_nothing_is_cached(self):
        done = self.with_stand_in(NO_STORE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("again: came from tier -, expected dram", done.stderr)

    def test_fails_where_a_hit_changes_the_answer(self):
        done = self.with_stand_in(OTHER_ANSWER)
        self.assertEqual(done.returncode, 1)
        self.assertIn("after a restart of kvistd: the output differs", done.stderr)

    def test_fails_and_cleans_up_where_kvist_fails(self):
        before = self.left_over()
        done = self.with_stand_in(FAILING)
        self.assertEqual(done.returncode, 1)
        self.assertIn("kvist generate ended with status 1", done.stderr)
        self.assertEqual(self.left_over() - before, set())


if __name__ == "__main__":
    unittest.main()
