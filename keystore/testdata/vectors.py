#!/usr/bin/env python3
"""Makes testdata/mmap and testdata/localfs with the real library of Salt 3008.

Run it with the interpreter of a virtual environment that has salt 3008:
    <venv>/bin/python keystore/testdata/vectors.py
The files are small on purpose: 61 slots instead of a million.
"""
import json
import os
import shutil

import salt.cache.localfs_key as localfs
import salt.cache.mmap_key as mmap

HERE = os.path.dirname(os.path.abspath(__file__))
OPTS = {
    "pki_dir": "", "cachedir": "", "permissive_pki_access": False, "user": None, "cluster_id": None,
    "mmap_key_size": 61, "mmap_key_slot_size": 96, "mmap_key_id_size": 64, "hash_type": "sha256",
    "keys.cache_driver": "mmap_key", "__role": "master",
}
PEM = "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----"


def pub(name, size=120):
    return PEM % "\n".join((name + "A" * 64)[:64] for _ in range(size // 64 + 1))


def main():
    for driver, folder in ((mmap, "mmap"), (localfs, "localfs")):
        path = os.path.join(HERE, folder)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        driver.__opts__ = dict(OPTS, pki_dir=path)
        states = {}
        for i in range(40):
            name = "minion%02d.example" % i
            states[name] = ("accepted", "pending", "rejected")[i % 3]
            driver.store("keys", name, {"state": states[name], "pub": pub(name, 64 * (i % 9))}, path, user=None)
        for i in range(0, 40, 7):  # deleted slots
            name = "minion%02d.example" % i
            driver.flush_("keys", name, path) if hasattr(driver, "flush_") else driver.flush("keys", name, path)
            del states[name]
        changed = {}
        for i in (1, 5):  # longer and shorter values in place
            name = "minion%02d.example" % i
            changed[name] = pub("changed", 64 * (20 if i == 1 else 1))
            states[name] = "accepted"
            driver.store("keys", name, {"state": "accepted", "pub": changed[name]}, path, user=None)
        driver.store("denied_keys", "minion01.example", [pub("denied")], path, user=None)
        want = [
            {"id": n, "state": s, "pub": changed.get(n, pub(n, 64 * (int(n[6:8]) % 9)))} for n, s in sorted(states.items())
        ]
        want.append({"id": "minion01.example", "state": "denied", "pub": pub("denied")})
        with open(os.path.join(path, "want.json"), "w") as f:
            json.dump(want, f, indent=1)
    # what WriteMmap must give: a table written once, in order
    path = os.path.join(HERE, "mmap-fresh")
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    mmap.__opts__ = dict(OPTS, pki_dir=path)
    mmap._caches.clear()
    for i in range(50):
        name = "fresh%02d" % i
        mmap.store("keys", name, {"state": ("accepted", "pending", "rejected")[i % 3], "pub": pub(name)}, path)
    mmap.store("denied_keys", "fresh07", [pub("denied")], path)
    for folder in ("mmap", "mmap-fresh"):
        for name in os.listdir(os.path.join(HERE, folder)):
            if name.endswith(".lock"):
                os.remove(os.path.join(HERE, folder, name))


main()
