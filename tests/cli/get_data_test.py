"""scripts/get_data from outside, without a network. Usage: get_data_test.py path/to/fem"""

import gzip
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "get_data"
FASHION = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
NOWHERE = {"https_proxy": "http://127.0.0.1:9", "no_proxy": ""}  # where nobody listens
CUT_OFF = """
import http.client, runpy, sys, urllib.request
def urlopen(*arguments, **options):
    raise http.client.IncompleteRead(b"", 100)
urllib.request.urlopen = urlopen
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class GetData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "copies").mkdir()

    def get(self, *words, by=()):
        return subprocess.run(
            [sys.executable, *by, SCRIPT, *words, "--to", "data"],
            cwd=self.folder, env={**os.environ, **NOWHERE}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def assert_refused(self, done, sentence):
        self.assertEqual(done.returncode, 1)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertFalse((self.folder / "data").exists())

    def test_a_table_that_is_not_the_published_one_is_refused(self):
        words = ("ETTh1", "--from", "copies")
        self.assert_refused(self.get(*words), "expected ETTh1.csv or ETTh1.csv.gz somewhere in copies")
        (self.folder / "copies" / "ETTh1.csv").write_text("date,OT\n")
        self.assert_refused(self.get(*words), "not the published file")

    def test_pictures_are_refused_unless_all_files_are_the_published_ones(self):
        words = ("fashion-mnist", "--from", "copies")
        self.assert_refused(self.get(*words), "expected train-images-idx3-ubyte or train-images-idx3-ubyte.gz")
        packed = self.folder / "copies" / "train-images-idx3-ubyte.gz"
        packed.write_bytes(gzip.compress(b"no pictures")[:-4])
        self.assert_refused(self.get(*words), "train-images-idx3-ubyte.gz is damaged, or its end is missing")
        packed.write_bytes(gzip.compress(b"no pictures"))
        self.assert_refused(self.get(*words), "train-images-idx3-ubyte: expected sha256 c59f468a2f67")

    def test_a_download_that_fails_is_one_sentence_and_leaves_nothing(self):
        for name in ("ETTh1", "fashion-mnist"):
            self.assert_refused(self.get(name), "cannot be fetched")
            self.assert_refused(self.get(name, by=("-c", CUT_OFF)), "cannot be fetched")
        self.assert_refused(self.get("weather"), "has no official place")

    @unittest.skipUnless(DEBIAN.is_dir(), "needs Debian's dataset-fashion-mnist")
    def test_debians_copy_of_fashion_mnist_is_taken(self):
        done = self.get("fashion-mnist", "--from", DEBIAN)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("47.0 MB, sha256 c59f468a2f67..., licence: MIT", done.stdout)
        self.assertEqual(sorted(path.name for path in (self.folder / "data/fashion-mnist").iterdir()), sorted(FASHION))
        last = self.folder / "data/fashion-mnist/t10k-labels-idx1-ubyte"
        self.assertEqual(last.stat().st_size, 10_008)


if __name__ == "__main__":
    sys.argv.pop(1)
    unittest.main()
