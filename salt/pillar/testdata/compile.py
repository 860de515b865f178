"""Compile the pillar trees of a folder of .txtar files with Salt's own compiler.

Usage: python compile.py TREES [NAME ...], with the Python of a Salt
installation. Prints one JSON map from tree to its pillar. Texts that are paths
of the run are ROOT; maps with keys that are no text are lists of pairs.
"""

import base64
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
import salt.pillar
import salt.utils.yaml

GRAINS = """
id: web1
os: Debian
os_family: Debian
osrelease: '12'
kernel: Linux
fqdn: web1.example.net
domain: example.net
host: web1
roles: [web, db]
nest: {a: {b: c}}
ipv4: [127.0.0.1, 10.1.2.3]
ipv6: ['::1', 'fe80::1']
ip4_interfaces: {lo: [127.0.0.1], eth0: [10.1.2.3]}
num_cpus: 4
mem_total: 2048
"""


def parts(text):
    found = re.split(r"(?m)^-- (.+) --\n", text)
    return dict(zip(found[1::2], found[2::2]))


def plain(v, root):
    if isinstance(v, dict):
        if all(isinstance(k, str) for k in v):
            return {plain(k, root): plain(x, root) for k, x in v.items()}
        return {"__pairs__": [[plain(k, root), plain(x, root)] for k, x in v.items()]}
    if isinstance(v, (list, tuple)):
        return [plain(x, root) for x in v]
    if isinstance(v, bytes):
        return {"__bytes__": base64.b64encode(v).decode()}
    if isinstance(v, str):
        return str(v).replace(root, "ROOT")
    if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))):
        return {"__float__": repr(v)}
    return v


def compile_tree(path):
    tree = parts(open(path, encoding="utf-8").read())
    root = os.path.realpath(tempfile.mkdtemp(prefix="pillartree"))
    try:
        for name, text in tree.items():
            if "/" in name:
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text.replace("ROOT", root))
        for d in ("pki/minions", "cache"):
            os.makedirs(os.path.join(root, d))
        open(os.path.join(root, "pki/minions/web1"), "w").write("key")
        conf = {
            "root_dir": root, "cachedir": root + "/cache", "pki_dir": root + "/pki",
            "pillar_roots": {"base": [root + "/pillar"]}, "file_roots": {"base": [root + "/files"]},
            "conf_file": root + "/master", "id": "master1",
        }
        conf.update(salt.utils.yaml.safe_load(tree.get("config", "{}").replace("ROOT", root)) or {})
        opts = salt.config.apply_master_config(conf)
        opts["__role"] = "master"
        req = salt.utils.yaml.safe_load(tree.get("request", "{}")) or {}
        grains = salt.utils.yaml.safe_load(GRAINS)
        p = salt.pillar.Pillar(
            opts, grains, req.get("id", "web1"), req.get("saltenv"), ext=req.get("ext"),
            pillar_override=req.get("override"), pillarenv=req.get("pillarenv"), extra_minion_data=req.get("extra"),
        )
        try:
            return plain(copy.deepcopy(p.compile_pillar()), root)
        except Exception as exc:
            return {"__raised__": type(exc).__name__}
    finally:
        shutil.rmtree(root)


def main():
    trees = sys.argv[1]
    names = sys.argv[2:] or sorted(n[:-6] for n in os.listdir(trees) if n.endswith(".txtar"))
    json.dump({n: compile_tree(os.path.join(trees, n + ".txtar")) for n in names}, sys.stdout, ensure_ascii=False)


main()
