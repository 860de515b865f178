"""Run the orchestrations of a folder of .txtar files with Salt's own runner.

Usage: python orchestrate.py TREES [NAME ...], with the Python of a Salt
installation. Prints one JSON map from tree to what the runner returned and the
events that it fired. Paths of the run are ROOT; times and tracebacks are left
out.
"""

import contextlib
import copy
import json
import logging
import os
import re
import shutil
import sys
import tempfile

logging.disable(logging.CRITICAL)

import salt.config
import salt.loader
import salt.minion
import salt.utils.event
import salt.utils.yaml

GRAINS = """
id: master1_master
os: Debian
os_family: Debian
kernel: Linux
fqdn: master1.example.net
host: master1
roles: [web, db]
nest: {a: {b: c}}
"""

JID = "20260101000000000000"
EVENTS = []
# What Python adds to an exception, up to the exception's own text.
TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:  .*\n)+(?:[\w.]+: )")


class Bus:
    """Takes events in place of the master's bus."""

    def fire_event(self, data, tag, *args, **kwargs):
        EVENTS.append([tag, copy.deepcopy(data)])
        return True


@contextlib.contextmanager
def bus(*args, **kwargs):
    yield Bus()


salt.utils.event.get_master_event = bus
salt.loader.grains = lambda opts, *args, **kwargs: salt.utils.yaml.safe_load(GRAINS)


def parts(text):
    found = re.split(r"(?m)^-- (.+) --\n", text)
    return dict(zip(found[1::2], found[2::2]))


def plain(v, root):
    if isinstance(v, dict):
        return {str(plain(k, root)): plain(x, root) for k, x in v.items() if k not in ("start_time", "duration")}
    if isinstance(v, (list, tuple)):
        return [plain(x, root) for x in v]
    if isinstance(v, str):
        v = TRACEBACK.sub("", str(v))
        return v.replace(root, "ROOT").replace(JID, "JID")
    return v


def orchestrate(path):
    tree = parts(open(path, encoding="utf-8").read())
    root = os.path.realpath(tempfile.mkdtemp(prefix="statetree"))
    del EVENTS[:]
    try:
        for name, text in tree.items():
            if "/" in name:
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text.replace("ROOT", root))
        for d in ("pki/minions", "cache", "files", "pillar", "sock"):
            os.makedirs(os.path.join(root, d), exist_ok=True)
        conf = {
            "root_dir": root, "cachedir": root + "/cache", "pki_dir": root + "/pki", "sock_dir": root + "/sock",
            "pillar_roots": {"base": [root + "/pillar"]}, "file_roots": {"base": [root + "/files"]},
            "conf_file": root + "/master", "id": "master1",
        }
        conf.update(salt.utils.yaml.safe_load(tree.get("config", "{}").replace("ROOT", root)) or {})
        with open(root + "/master", "w", encoding="utf-8") as f:
            json.dump(conf, f)
        opts = salt.config.master_config(root + "/master")
        req = salt.utils.yaml.safe_load(tree.get("request", "{}").replace("ROOT", root)) or {}
        fun = req.pop("fun", "orchestrate")
        if fun == "orchestrate":
            req.setdefault("mods", "o")
            req["orchestration_jid"] = JID
        runners = salt.loader.runner(opts, utils=salt.loader.utils(opts))
        runners.pack["__jid_event__"] = Bus()
        try:
            said = {"return": runners["state." + fun](**req)}
        except Exception as exc:
            said = {"raised": str(exc)}
        said["events"] = list(EVENTS)
        return plain(said, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main():
    trees = sys.argv[1]
    names = sys.argv[2:] or sorted(n[:-6] for n in os.listdir(trees) if n.endswith(".txtar"))
    said = {}
    for n in names:
        print(n, file=sys.stderr)
        said[n] = orchestrate(os.path.join(trees, n + ".txtar"))
    json.dump(said, sys.stdout, ensure_ascii=False)


main()
