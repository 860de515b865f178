"""Resolve targets over synthetic minions with Salt's own matchers.

Usage: python match.py WORLD.json, with the Python of a Salt installation.
WORLD holds minions (id to grains and pillar, null for none), nodegroups and
targets (lists of type, expression, greedy). Prints a JSON list of sorted ids.
"""

import json
import logging
import os
import shutil
import sys
import tempfile

logging.disable(logging.CRITICAL)

import salt.cache
import salt.config
import salt.utils.minions

sys.dont_write_bytecode = True
from memo import Memo


def main():
    world = json.load(open(sys.argv[1], encoding="utf-8"))
    root = tempfile.mkdtemp(prefix="targets")
    try:
        os.makedirs(root + "/pki/minions")
        opts = salt.config.apply_master_config({
            "root_dir": root, "cachedir": root + "/cache", "pki_dir": root + "/pki", "conf_file": root + "/master", "id": "m",
            "nodegroups": world["nodegroups"],
        })
        opts["__role"] = "master"
        cache = salt.cache.factory(opts)
        for name, data in world["minions"].items():
            open(os.path.join(root, "pki/minions", name), "w").write("key")
            for bank in ("grains", "pillar"):
                if data and data.get(bank) is not None:
                    cache.store(bank, name, data[bank])
        memo = Memo(cache)
        found = []
        for kind, expr, greedy in world["targets"]:
            ck = salt.utils.minions.CkMinions(opts)
            ck.cache = memo
            try:
                res = ck.check_minions(expr, kind, greedy=greedy)
                found.append(sorted(res["minions"]))
            except Exception as exc:
                found.append(["raised " + type(exc).__name__])
        json.dump(found, sys.stdout)
    finally:
        shutil.rmtree(root)


main()
