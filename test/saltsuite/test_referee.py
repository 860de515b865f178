"""Tests of the referee's own judgement; needs neither Salt nor pytest. Run by the Go test."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
loader = importlib.machinery.SourceFileLoader("referee", str(HERE / "referee"))
referee = importlib.util.module_from_spec(importlib.util.spec_from_loader("referee", loader))
loader.exec_module(referee)

F = "integration/x/test_x.py"
A, B = f"tests/pytests/{F}::test_a", f"tests/pytests/{F}::test_b"


def phases(test, **outcomes):
    """The rows of a test that was run to its end."""
    rows = [{"start": test}]
    for when in ("setup", "call", "teardown"):
        if outcomes.get("setup", "passed") == "passed" or when != "call":
            rows.append({"test": test, "when": when, "outcome": outcomes.get(when, "passed"), "seconds": 1, "text": "E boom"})
    return rows


def outcomes(rows, fault=""):
    return {n: t["outcome"] for n, t in referee.digest(rows, [F], fault).items()}


class Digest(unittest.TestCase):
    def test_ended(self):
        rows = [{"collected": [A, B]}] + phases(A) + phases(B, call="failed")
        self.assertEqual(outcomes(rows), {A: "passed", B: "failed"})

    def test_fixtures(self):
        self.assertEqual(outcomes(phases(A, setup="failed") + phases(B, teardown="failed")), {A: "error", B: "error"})
        self.assertEqual(outcomes(phases(A, setup="skipped") + phases(B, call="skipped")), {A: "skipped", B: "skipped"})

    def test_process_died(self):
        """Neither the test that ran nor the one after it counts as passed."""
        rows = [{"collected": [A, B]}] + phases(A)[:-1]
        self.assertEqual(outcomes(rows, "pytest ended with 137"), {A: "harness", B: "harness"})
        self.assertEqual(outcomes([{"collected": [A, B]}, {"start": A}]), {A: "harness", B: "harness"})

    def test_nothing_ran(self):
        self.assertEqual(outcomes([], "pytest ended with 4"), {f"tests/pytests/{F}": "harness"})

    def test_collection_broke(self):
        self.assertEqual(outcomes([{"broken": f"tests/pytests/{F}", "text": "E ImportError"}], "pytest ended with 2"), {f"tests/pytests/{F}": "harness"})


class Stopped(unittest.TestCase):
    def test_complete(self):
        """A run that is stopped keeps the files whose tests all ended, and no others."""
        other = "integration/x/test_y.py"
        rows = [{"collected": [A, B, f"tests/pytests/{other}::test_c"]}] + phases(A) + phases(B, call="failed")
        tests, files = referee.complete(referee.digest(rows, [F, other], "ended"), [F, other])
        self.assertEqual(files, [F])
        self.assertEqual({n: t["outcome"] for n, t in tests.items()}, {A: "passed", B: "failed"})


class Record(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.before = referee.HERE, referee.RESULTS, referee.PAGE
        referee.HERE, referee.RESULTS, referee.PAGE = self.dir, self.dir / "results.tsv", self.dir / "page.md"
        (self.dir / "selection.txt").write_text(f"{F}\nintegration/x/test_y.py\n")
        (self.dir / "exclude.txt").write_text("unit  # stand-ins\n")
        (self.dir / "reasons.txt").write_text("")
        referee.PAGE.write_text(f"# Head\n\n{referee.BEGIN}\nyesterday\n{referee.END}\n")

    def tearDown(self):
        referee.HERE, referee.RESULTS, referee.PAGE = self.before

    def run_of(self, side, tests, files=(F,)):
        path = self.dir / f"{side}.json"
        path.write_text(json.dumps({"side": side, "files": list(files), "tests": tests}))
        return path

    def record(self, ours, peer):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = referee.record(self.run_of("ours", ours), self.run_of("peer", peer))
        return code, out.getvalue(), referee.PAGE.read_text()

    def test_all_pass(self):
        passed = {A: {"outcome": "passed", "text": ""}}
        code, _, page = self.record(passed, passed)
        self.assertEqual(code, 0)
        self.assertRegex(page, rf"\| {F} \| 1 \| 1 \| 1 \| 0 \|")
        self.assertIn("| integration/x/test_y.py |", page)
        self.assertIn("| unit | stand-ins |", page)
        self.assertNotIn("yesterday", page)

    def test_harness(self):
        """An error of the harness on either side is no pass, and the run fails."""
        passed, broken = {A: {"outcome": "passed", "text": ""}}, {A: {"outcome": "harness", "text": "died"}}
        for ours, peer in ((broken, passed), (passed, broken)):
            code, out, page = self.record(ours, peer)
            self.assertEqual(code, 1)
            self.assertIn("error of the harness", out)
            self.assertIn("1 (1 errors of the harness)", page)
            self.assertIn("**0 of these pass with ours**", page)

    def test_lost(self):
        """What passes with Salt's master only needs a reason, and a reason needs such a test."""
        passed, failed = {A: {"outcome": "passed", "text": ""}}, {A: {"outcome": "failed", "text": "E boom"}}
        code, out, page = self.record(failed, passed)
        self.assertEqual(code, 1)
        self.assertIn("E boom", out)
        self.assertIn("not known yet", page)
        (self.dir / "reasons.txt").write_text(f"{F}::test_a  # on purpose\n")
        code, _, page = self.record(failed, passed)
        self.assertEqual(code, 0)
        self.assertIn("| on purpose |", page)
        code, out, _ = self.record(passed, passed)
        self.assertEqual(code, 1)
        self.assertIn("a reason for nothing", out)

    def test_absent(self):
        code, _, page = self.record({}, {A: {"outcome": "passed", "text": ""}})
        self.assertEqual(code, 1)
        self.assertIn("**0 of these pass with ours**", page)

    def test_second_try(self):
        again = {A: {"outcome": "passed", "text": "", "before": "E late"}}
        code, _, page = self.record(again, {A: {"outcome": "passed", "text": ""}})
        self.assertEqual(code, 0)
        self.assertIn("| passed | unsteady |", page)


unittest.main()
