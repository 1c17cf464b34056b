"""The include scanner notices what it is there for. Usage: check_layers_test.py path/to/check_layers.py"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCANNER = ""
CLEAN = {
    "include/fem/read.h": "#include <vector>\n",
    "src/util/check.h": "#pragma once\n",
    "src/ops/read/read.cpp": '#include "fem/read.h"\n#include "util/check.h"\n#include "ops/read/read.h"\n',
    "src/ops/read/read.h": "#pragma once\n",
    "src/data/rows.h": "#pragma once\n",
    "src/bench/bench.h": '#include "ops/read/read.h"\n',
    "src/experiments/run.cpp": '#include "ops/read/read.h"\n',
    "apps/fem/main.cpp": '#include "bench/bench.h"\n#include "commands.h"\n',
    "apps/fem/commands.h": "#pragma once\n",
}


def scan(files):
    with tempfile.TemporaryDirectory() as tree:
        for name, text in files.items():
            path = Path(tree) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run([sys.executable, SCANNER, tree], capture_output=True, text=True)


class Ladder(unittest.TestCase):
    def assert_violation(self, name, text):
        result = scan({**CLEAN, name: text})
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(name, result.stdout)

    def test_clean_tree_passes(self):
        result = scan(CLEAN)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_upward_folder_may_not_include_a_lower_one(self):
        self.assert_violation("src/util/bad.cpp", '#include "ops/read/read.h"\n')
        self.assert_violation("include/fem/bad.h", '#include "util/check.h"\n')

    def test_relative_and_indented_includes_are_seen(self):
        self.assert_violation("src/util/bad.cpp", '  #  include "../ops/read/read.h"\n')

    def test_folders_of_one_rung_keep_apart(self):
        self.assert_violation("src/bindings/bad.cpp", '#include "data/rows.h"\n')

    def test_unknown_folder_is_named(self):
        self.assert_violation("src/extra/new.cpp", "\n")


if __name__ == "__main__":
    SCANNER = sys.argv.pop(1)
    unittest.main()
