"""Stands in for salt-factories' engine inside a Salt master: hears the master's
local event bus with Salt's own client and tells each event to the test process.

usage: forwarder.py CONFIG_FILE; ends with its parent, the master.
"""

import ctypes
import datetime
import os
import signal
import socket
import sys
import time

ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
PARENT = os.getppid()

import msgpack

import salt.config
import salt.utils.event
from saltfactories.utils.saltext.engines.pytest_engine import ext_type_encoder


def reachable(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(1)
    try:
        s.connect(address)
        return True
    except OSError:
        return False
    finally:
        s.close()


def alone(opts):
    """Whether a master of a cluster can't find a majority yet."""
    peers = opts.get("cluster_peers") or []
    if not opts.get("cluster_id") or not peers:
        return False
    port = int(opts.get("cluster_pool_port") or 4520)
    there = 1 + sum(reachable(socket.AF_INET, (p, port)) for p in peers)
    return there <= (len(peers) + 1) // 2


def alive():
    return os.getppid() == PARENT


def main():
    opts = salt.config.master_config(sys.argv[1])
    address = opts["pytest-master"]["returner_address"]
    out = socket.create_connection((address["host"], address["port"]))
    bus = os.path.join(opts["sock_dir"], "master_event_pub.ipc")
    host = opts["interface"] if opts["interface"] not in ("0.0.0.0", "::") else "127.0.0.1"
    tag = "salt/master/{}/start".format(opts["id"])
    told_early = False
    while alive():
        up = reachable(socket.AF_UNIX, bus)
        if up and reachable(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(opts["ret_port"]))):
            break
        if up and not told_early and alone(opts):
            # The master founds no cluster before a majority of its masters is
            # there; the tests start the second when the first has told.
            told_early = True
            stamp = datetime.datetime.now(datetime.timezone.utc).isoformat()
            data = {"id": opts["id"], "tag": tag, "data": {}, "_stamp": stamp}
            out.sendall(msgpack.packb({"id": opts["id"], "tag": tag, "data": data}, use_bin_type=True))
        time.sleep(0.1)
    opts = opts.copy()
    opts["file_client"] = "local"
    with salt.utils.event.get_event("master", sock_dir=opts["sock_dir"], opts=opts, listen=True) as events:
        # As the engine does: the event comes back over the bus, which shows
        # that all of it works. Again until it does.
        seen, told = False, 0
        while alive():
            if not seen and time.time() - told > 3:
                events.fire_event({"id": opts["id"], "tag": tag, "data": {}}, tag)
                told = time.time()
            event = events.get_event(wait=0.5, full=True, auto_reconnect=True)
            if not event:
                continue
            seen = seen or event["tag"] == tag
            row = {"id": opts["id"], "tag": event["tag"], "data": event["data"]}
            out.sendall(msgpack.packb(row, use_bin_type=True, default=ext_type_encoder))


main()
