"""Compile pillars of a site's folder with Salt's own compiler.

Usage: python compile.py ROOT MINION ..., with the Python of a Salt installation. Prints one msgpack map from minion to its
pillar.
"""

import copy
import logging
import os
import sys

logging.disable(logging.CRITICAL)

import msgpack
import salt.config
import salt.pillar
import salt.utils.yaml

GRAINS = """
os: Debian
os_family: Debian
osrelease: '12'
osrelease_info: [12]
kernel: Linux
kernelrelease: 6.1.0
cpuarch: x86_64
osarch: amd64
"""


def plain(v):
    if isinstance(v, dict):
        return {plain(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return str(v) if isinstance(v, str) else v


def compile_pillar(root, minion):
    os.makedirs(root + "/pki/minions", exist_ok=True)
    open(f"{root}/pki/minions/{minion}", "w").write("key")
    opts = salt.config.master_config(root + "/master")
    opts["__role"] = "master"
    grains = salt.utils.yaml.safe_load(GRAINS)
    grains["id"] = minion
    p = salt.pillar.Pillar(opts, grains, minion, None)
    return plain(copy.deepcopy(p.compile_pillar()))


def main():
    root, minions = sys.argv[1], sys.argv[2:]
    sys.stdout.buffer.write(msgpack.packb({m: compile_pillar(root, m) for m in minions}))


main()
