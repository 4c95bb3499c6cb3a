#!/usr/bin/env python3
"""Includes follow the arrows: kernels <- engine -> cachestore <- src <- tools (src also uses engine).

Run on the tree by ctest; the cases below also run the checker on small trees that break each rule.
"""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What each top-level folder may include of ours. tests and bench may include anything.
ALLOWED = {
    "kernels": {"kernels"},
    "cachestore": {"cachestore"},
    "engine": {"engine", "kernels", "cachestore"},
    "src": {"src", "engine", "cachestore"},
    "tools": {"tools", "src", "engine", "kernels", "cachestore"},
}
# The one crossing: the CUDA implementation of the store's device seam.
EXCEPTIONS = {("kernels/cuda", "cachestore/tier/device_tier.h")}
# Libraries that stay behind one folder's interface.
SOLE_USERS = {"liburing": "cachestore/io", "rocksdb/": "cachestore/index"}
FORBIDDEN_NAMES = {"util", "utils", "common", "base", "helpers", "helper", "misc"}

SOURCES = {".h", ".cc", ".cu", ".cpp", ".hpp", ".c"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def sources(root):
    for top in [*ALLOWED, "tests", "bench"]:
        yield from sorted(path for path in (root / top).rglob("*") if path.suffix in SOURCES)


def include_fault(root, path, quoted, included):
    """Why `path` must not include `included`; None if it may."""
    here = path.relative_to(root).as_posix()
    top, folder = here.split("/")[0], path.parent.relative_to(root).as_posix()
    for library, owner in SOLE_USERS.items():
        if included.startswith(library) and top in ALLOWED and folder != owner:
            return f"only {owner} uses {library.rstrip('/')}"
    if quoted and (path.parent / included).exists() and not (root / included).exists():
        return "include paths start at the repository's root"
    target = included.split("/")[0]
    if top not in ALLOWED or target not in [*ALLOWED, "tests", "bench"]:
        return None
    if target in ALLOWED[top] or (folder, included) in EXCEPTIONS:
        return None
    return f"{top} may include {', '.join(sorted(ALLOWED[top]))} only"


def faults(root):
    found = []
    for path in sources(root):
        here = path.relative_to(root)
        for bracket, included in INCLUDE.findall(path.read_text(errors="replace")):
            fault = include_fault(root, path, bracket == '"', included)
            if fault:
                found.append(f"{here} includes {included}: {fault}")
        for name in (*here.parts[:-1], here.stem):
            if name in FORBIDDEN_NAMES:
                found.append(f"{here}: '{name}' says nothing of what is in it")
    return found


class Layering(unittest.TestCase):
    def check(self, path, line):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(line + "\n")
            (file.parent / "beside.h").write_text("")
            return faults(pathlib.Path(folder))

    def test_the_tree_follows_the_arrows(self):
        self.assertTrue(list(sources(ROOT)), "no sources found: is the test looking at the right folder?")
        self.assertEqual(faults(ROOT), [])

    def test_against_an_arrow_is_found(self):
        for path, line in [
            ("kernels/cpu/a.cc", '#include "engine/model/model.h"'),
            ("kernels/cpu/a.cc", '#include "cachestore/tier/device_tier.h"'),
            ("kernels/cuda/a.cu", '#include "cachestore/prefix_store.h"'),
            ("cachestore/key/a.h", '#include "engine/text/tokenizer.h"'),
            ("cachestore/key/a.h", '#  include "src/protocol/frame.h"'),
            ("engine/model/a.cc", '#include "src/client/remote_store.h"'),
            ("src/daemon/a.cc", '#include "tools/cli/command.h"'),
            ("src/daemon/a.cc", '#include "kernels/tensor_type.h"'),
            ("tools/cli/a.cc", '#include "tests/engine/tiny_gguf.h"'),
            ("cachestore/tier/a.cc", "#include <liburing.h>"),
            ("cachestore/tier/a.cc", '#include "rocksdb/db.h"'),
            ("engine/model/a.cc", '#include "beside.h"'),
            ("src/common/a.cc", ""),
            ("src/daemon/util.h", ""),
        ]:
            with self.subTest(path=path, line=line):
                self.assertNotEqual(self.check(path, line), [])

    def test_along_an_arrow_is_not(self):
        for path, line in [
            ("kernels/cuda/a.cu", '#include "cachestore/tier/device_tier.h"'),
            ("engine/model/a.cc", '#include "kernels/tensor_type.h"'),
            ("engine/model/a.cc", '#include "cachestore/prefix_store.h"'),
            ("src/daemon/a.cc", '#include "engine/generate/generator.h"'),
            ("tools/cli/a.cc", '#include "src/client/open_store.h"'),
            ("cachestore/io/a.cc", "#include <liburing.h>"),
            ("cachestore/index/a.cc", '#include "rocksdb/db.h"'),
            ("tests/a_test.cc", '#include "tools/cli/command.h"'),
            ("cachestore/key/a.cc", "#include <base64.h>"),
        ]:
            with self.subTest(path=path, line=line):
                self.assertEqual(self.check(path, line), [])


if __name__ == "__main__":
    unittest.main()
