#!/usr/bin/env python3
"""The real `kvist` and `kvistd` on a tiny model: what users see of good and of bad input."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

KVIST, KVISTD, WRITE_TINY_GGUF = (pathlib.Path(os.environ[name]) for name in ("KVIST", "KVISTD", "WRITE_TINY_GGUF"))
OK, FAILED, USAGE, MODEL, STORE = range(5)
READY_S = 30
PROMPT = "The quick brown fox jumps over the lazy dog, and then it sleeps until noon. " * 3


class KvistTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="kvist-cli-", dir="/var/tmp")
        cls.addClassCleanup(temporary.cleanup)
        cls.shared = pathlib.Path(temporary.name)
        cls.model = cls.shared / "tiny.gguf"
        subprocess.run([WRITE_TINY_GGUF, cls.model], check=True)

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="k-", dir=self.shared)
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def kvist(self, *arguments, stdin=""):
        return subprocess.run([KVIST, *arguments], input=stdin, capture_output=True, text=True, timeout=100, check=False)

    def generate(self, *flags, prompt=PROMPT):
        """The JSON of a run that must succeed."""
        done = self.kvist("generate", "-m", self.model, "-p", prompt, "--json", "--block-tokens", "16", "--max-tokens",
                          "8", *flags)
        self.assertEqual(done.returncode, OK, done.stderr)
        return json.loads(done.stdout)

    def expect_error(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, r"\Akvist: [^\n]+\n\Z", "an error is one line")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")

    def start_daemon(self):
        """Yields its --store."""
        socket = self.folder / "s"
        config = self.folder / "kvistd.toml"
        config.write_text(f'[daemon]\nsocket = "{socket}"\n[store]\ndirectory = "{self.folder / "d"}"\n'
                          'dram = "64MiB"\nnvme = "64MiB"\nsegment = "8MiB"\n')
        with open(self.folder / "log", "ab") as log:
            daemon = subprocess.Popen([KVISTD, "--config", config], stdout=log, stderr=log)
        self.addCleanup(self.end, daemon)
        deadline = time.monotonic() + READY_S
        while self.kvist("status", "--store", f"unix:{socket}").returncode != OK:
            self.assertIsNone(daemon.poll(), (self.folder / "log").read_text())
            self.assertLess(time.monotonic(), deadline, "kvistd does not answer")
            time.sleep(0.05)
        return f"unix:{socket}"

    def end(self, daemon):
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(READY_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


class Generate(KvistTest):
    def test_streams_text_to_stdout_and_the_summary_to_stderr(self):
        done = self.kvist("generate", "-m", self.model, "-p", "hello", "--max-tokens", "4")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertTrue(done.stdout.endswith("\n"))
        self.assertRegex(done.stderr, r"\A\d+ prompt tokens, 0 cached \(tier -\), [^\n]+\n\Z")

    def test_takes_the_prompt_from_a_file_and_from_stdin_alike(self):
        file = self.folder / "prompt"
        file.write_text(PROMPT)
        flags = ("generate", "-m", self.model, "--json", "--max-tokens", "8")
        outputs = [self.kvist(*flags, "-f", file), self.kvist(*flags, "-f", "-", stdin=PROMPT),
                   self.kvist(*flags, "-p", PROMPT)]
        tokens = [json.loads(done.stdout)["tokens"] for done in outputs]
        self.assertEqual(tokens[0], tokens[1])
        self.assertEqual(tokens[0], tokens[2])

    def test_chat_adds_the_models_template(self):
        self.assertGreater(self.generate("--chat")["prompt_tokens"], self.generate()["prompt_tokens"])
        self.assertNotEqual(self.generate("--chat", "--system", "Answer in one short sentence, please.")["prompt_tokens"],
                            self.generate("--chat")["prompt_tokens"])

    def test_equal_seeds_give_equal_samples(self):
        flags = ("--temperature", "1.5", "--top-p", "0.9", "--seed", "7")
        self.assertEqual(self.generate(*flags)["tokens"], self.generate(*flags)["tokens"])

    def test_forced_progress_leaves_stdout_alone(self):
        done = self.kvist("generate", "-m", self.model, "-p", "hello", "--max-tokens", "4", "--json", "--progress")
        json.loads(done.stdout)
        self.assertIn("loading the model", done.stderr)

    def test_a_folder_keeps_the_prompt_for_the_next_process(self):
        store = ("--store", self.folder / "store")
        cold, warm = self.generate(*store), self.generate(*store)
        self.assertEqual((cold["cached_tokens"], cold["store_error"]), (0, ""))
        self.assertEqual(warm["cached_tokens"], (warm["prompt_tokens"] - 1) // 16 * 16)
        self.assertEqual(warm["tier"], "nvme")
        self.assertEqual(warm["tokens"], cold["tokens"])

    def test_salts_and_tenants_share_nothing(self):
        store = ("--store", self.folder / "store")
        self.generate(*store, "--tenant", "a", "--salt", "1")
        for other in (("--tenant", "a", "--salt", "2"), ("--tenant", "b", "--salt", "1"), ()):
            self.assertEqual(self.generate(*store, *other)["cached_tokens"], 0, other)

    def test_no_cache_read_and_write_do_what_they_say(self):
        store = ("--store", self.folder / "store")
        self.generate(*store, "--no-cache-write")
        self.assertEqual(self.generate(*store)["cached_tokens"], 0)
        self.assertEqual(self.generate(*store, "--no-cache-read")["cached_tokens"], 0)
        self.assertGreater(self.generate(*store)["cached_tokens"], 0)


class GenerateErrors(KvistTest):
    def run_with(self, *flags, model=None):
        return self.kvist("generate", "-m", model or self.model, *flags)

    def test_missing_model(self):
        self.expect_error(self.run_with("-p", "x", model=self.folder / "none.gguf"), MODEL, "none.gguf")

    def test_model_that_is_no_gguf(self):
        file = self.folder / "text.gguf"
        file.write_text("this is not a model" * 10)
        self.expect_error(self.run_with("-p", "x", model=file), MODEL, "GGUF")

    def test_truncated_model(self):
        file = self.folder / "cut.gguf"
        file.write_bytes(self.model.read_bytes()[:-100])
        self.expect_error(self.run_with("-p", "x", model=file), MODEL)

    def test_no_prompt_and_two_prompts(self):
        self.expect_error(self.run_with(), USAGE, "--prompt")
        self.expect_error(self.run_with("-p", "x", "-f", "y"), USAGE)

    def test_missing_prompt_file(self):
        self.expect_error(self.run_with("-f", self.folder / "none.txt"), USAGE, "none.txt", "-f")

    def test_empty_prompt(self):
        self.expect_error(self.run_with("-f", "/dev/null"), USAGE, "empty")

    def test_prompt_longer_than_the_context_names_both_lengths(self):
        small = self.folder / "small.gguf"
        subprocess.run([WRITE_TINY_GGUF, small, "64"], check=True)
        self.expect_error(self.run_with("-p", "x" * 5000, model=small), USAGE, "context of 64", "--max-tokens")

    def test_flags_out_of_range(self):
        for flags in (("--block-tokens", "17"), ("--max-tokens", "0"), ("--top-p", "1.5"), ("--temperature", "-1"),
                      ("--threads", "-1"), ("--nonsense",)):
            with self.subTest(flags=flags):
                self.expect_error(self.run_with("-p", "x", *flags), USAGE, flags[0].strip("-").split("-")[0])

    def test_system_without_chat(self):
        self.expect_error(self.run_with("-p", "x", "--system", "y"), USAGE, "--chat")

    def test_daemon_that_does_not_run(self):
        self.expect_error(self.run_with("-p", "x", "--store", f"unix:{self.folder / 'none.sock'}"), STORE, "kvistd")

    def test_unknown_kind_of_store(self):
        self.expect_error(self.run_with("-p", "x", "--store", "ftp:somewhere"), STORE, "unix:")

    def test_folder_that_is_a_file(self):
        self.expect_error(self.run_with("-p", "x", "--store", self.model), STORE, "not a directory")


class StoreCommands(KvistTest):
    def check_store(self, store):
        """status, ls and drop agree on what a run left there."""
        self.generate("--store", store, "--tenant", "a")
        self.generate("--store", store, "--tenant", "b", "--salt", "secret-salt")
        namespaces = json.loads(self.kvist("ls", "--store", store, "--json").stdout)
        self.assertEqual({entry["tenant"] for entry in namespaces}, {"a", "b"})
        listed = self.kvist("ls", "--store", store)
        for entry in namespaces:
            self.assertIn(entry["namespace"], listed.stdout)
            self.assertGreater(entry["blocks"], 0)
        self.assertNotIn("secret-salt", listed.stdout + json.dumps(namespaces))
        status = json.loads(self.kvist("status", "--store", store, "--json").stdout)
        self.assertEqual(status["namespaces"], 2)
        blocks = {entry["tenant"]: entry["blocks"] for entry in namespaces}
        dropped = json.loads(self.kvist("drop", "--store", store, "--tenant", "a", "--json").stdout)
        self.assertEqual(dropped["blocks"], blocks["a"])
        self.assertEqual(self.generate("--store", store, "--tenant", "a", "--no-cache-write")["cached_tokens"], 0)
        of_b = next(entry["namespace"] for entry in namespaces if entry["tenant"] == "b")
        self.assertIn(f"dropped {blocks['b']} blocks", self.kvist("drop", "--store", store, "--namespace", of_b).stdout)
        self.assertIn("dropped 0 blocks", self.kvist("drop", "--store", store, "--all").stdout)

    def test_on_a_folder(self):
        self.check_store(str(self.folder / "store"))

    def test_on_a_daemon(self):
        self.check_store(self.start_daemon())

    def test_status_of_nothing_does_not_make_a_store(self):
        nowhere = self.folder / "nowhere"
        for command in (("status",), ("ls",), ("drop", "--all")):
            self.expect_error(self.kvist(*command, "--store", nowhere), STORE, str(nowhere))
        self.assertFalse(nowhere.exists())

    def test_drop_needs_to_know_what(self):
        store = self.folder / "store"
        self.expect_error(self.kvist("drop", "--store", store), USAGE)
        self.expect_error(self.kvist("drop", "--store", store, "--all", "--tenant", "a"), USAGE)
        self.expect_error(self.kvist("drop", "--store", store, "--namespace", "xyz"), USAGE, "32 hex digits")

    def test_store_is_required(self):
        for command in ("status", "ls"):
            self.expect_error(self.kvist(command), USAGE, "--store")


class Fsck(KvistTest):
    def setUp(self):
        super().setUp()
        self.store = self.folder / "store"
        self.generate("--store", self.store)

    def test_a_whole_store_is_clean(self):
        done = self.kvist("fsck", self.store)
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        self.assertTrue(done.stdout.endswith(": clean\n"), done.stdout)

    def test_damage_is_found_repaired_and_then_gone(self):
        (self.store / "SECRET").unlink()
        found = self.kvist("fsck", self.store, "--json")
        self.assertEqual(found.returncode, FAILED)
        self.assertRegex(found.stderr, r"\Akvist: 1 problem in [^\n]+--repair[^\n]+\n\Z")
        report = json.loads(found.stdout)
        self.assertEqual((report["clean"], report["repaired"]), (False, False))
        self.assertEqual(report["problems"][0]["path"], str(self.store / "SECRET"))
        repaired = self.kvist("fsck", self.store, "--repair", "--json")
        self.assertEqual(repaired.returncode, FAILED)
        self.assertTrue(json.loads(repaired.stdout)["repaired"])
        self.assertEqual(self.kvist("fsck", self.store).returncode, OK)
        self.assertGreater(self.generate("--store", self.store)["cached_tokens"], 0)

    def test_a_lost_index_comes_back(self):
        shutil.rmtree(self.store / "index")
        self.expect_error(self.kvist("status", "--store", self.store), STORE, "--rebuild-index")
        self.assertIn("rebuilt", self.kvist("fsck", self.store, "--rebuild-index").stdout)
        self.assertGreater(self.generate("--store", self.store)["cached_tokens"], 0)

    def test_what_cannot_be_checked_is_an_error(self):
        self.expect_error(self.kvist("fsck", self.folder / "none"), STORE, "none")
        self.expect_error(self.kvist("fsck", self.folder), STORE, "holds no store")
        self.expect_error(self.kvist("fsck"), USAGE)
        self.start_daemon()
        self.expect_error(self.kvist("fsck", self.folder / "d"), STORE, "in use")


class Usage(KvistTest):
    def test_help_names_the_commands_and_exit_codes(self):
        done = self.kvist("--help")
        self.assertEqual(done.returncode, OK)
        for word in ("generate", "status", "ls", "drop", "fsck", "Exit codes"):
            self.assertIn(word, done.stdout)

    def test_no_command_and_an_unknown_one(self):
        self.expect_error(self.kvist(), USAGE)
        self.expect_error(self.kvist("frobnicate"), USAGE)


if __name__ == "__main__":
    unittest.main()
