"""Tell when Salt's Schedule runs the entries of cases, and what its libraries read in texts.

Usage: python runs.py CASES, with the Python of a Salt installation. CASES is a YAML file; prints one JSON document. A run is "TIME NAME FUNCTION". The
clock is the case's; random numbers are the largest of their range.
"""

import datetime
import json
import logging
import sys
import tempfile

logging.disable(logging.CRITICAL)

import croniter
import dateutil.parser
import salt.utils.schedule
import salt.utils.yaml

FORM = "%Y-%m-%d %H:%M:%S"


class Clock:
    now = None

    @classmethod
    def parse(cls, text):
        return dateutil.parser.parse(text, default=cls.now.replace(hour=0, minute=0, second=0, microsecond=0))


class Watched(salt.utils.schedule.Schedule):
    def _run_job(self, func, data, jid=None):
        self.runs.append(f"{Clock.now:{FORM}} {data['name']} {func}")

    def _check_max_running(self, func, data, opts, now):
        return data


def runs(case, cachedir):
    opts = {
        "loop_interval": case.get("loop", 1), "schedule": salt.utils.yaml.safe_load(case["schedule"]), "cachedir": cachedir,
        "__role": "master", "id": "m", "pillar": {}, "grains": {},
    }
    s = Watched(opts, {"test.arg": None}, returners={}, new_instance=True)
    s.runs = []
    Clock.now = datetime.datetime.strptime(case["start"], FORM)
    end = Clock.now + datetime.timedelta(seconds=case["for"])
    while Clock.now <= end:
        try:
            s.eval(now=Clock.now)
        except Exception as exc:  # the master logs it, and nothing behind the entry runs
            s.runs.append(f"{Clock.now:{FORM}} {type(exc).__name__}")
        Clock.now += datetime.timedelta(seconds=case.get("step", 1))
    return s.runs


def read(texts, at, how):
    out = {}
    for text in texts:
        try:
            out[text] = how(text, at)
        except (ValueError, KeyError, TypeError, OverflowError):
            out[text] = ["error"]
    return out


def when(text, at):
    Clock.now = at
    return [Clock.parse(text).isoformat()]


def cron(text, at):
    it = croniter.croniter(text, at)
    return [it.get_next(datetime.datetime).isoformat() for _ in range(4)]


with open(sys.argv[1]) as f:
    cases = salt.utils.yaml.safe_load(f)
salt.utils.schedule.dateutil_parser = Clock
salt.utils.schedule.random.randint = lambda a, b: b
at = datetime.datetime.strptime(cases["at"], FORM)
with tempfile.TemporaryDirectory() as cachedir:
    print(json.dumps({
        "runs": {c["name"]: runs(c, cachedir) for c in cases["cases"]},
        "when": read(cases["when"], at, when), "cron": read(cases["cron"], at, cron),
    }, indent=1))
