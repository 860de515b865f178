"""Call Salt's own execution functions.

Usage: python calls.py ROOT, with the Python of a Salt installation. Reads a msgpack list of [function, args, kwargs]
from stdin, and prints a list of {value} or {class, text} of an exception. The options are those of ROOT/master.
"""

import logging
import sys

logging.disable(logging.CRITICAL)

import msgpack
import salt.config
import salt.loader
import salt.utils.yaml

GRAINS = """
id: web1
os: Debian
os_family: Debian
kernel: Linux
"""


def plain(v):
    if isinstance(v, dict):
        return {plain(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return v


def answer(functions, fun, args, kwargs):
    if fun not in functions:
        return {"class": "unknown", "text": ""}
    try:
        return {"value": plain(functions[fun](*args, **kwargs))}
    except Exception as exc:
        return {"class": type(exc).__name__, "text": str(exc)}


def main():
    opts = salt.config.master_config(sys.argv[1] + "/master")
    opts.update(grains=salt.utils.yaml.safe_load(GRAINS), pillar={}, file_client="local", id="web1")
    functions = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
    calls = msgpack.unpackb(sys.stdin.buffer.read(), raw=False, strict_map_key=False)
    sys.stdout.buffer.write(msgpack.packb([answer(functions, *c) for c in calls]))


main()
