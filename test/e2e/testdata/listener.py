"""Counts what a master does from its event bus, and serves the counts as a Prometheus exporter does.

The arguments are the folder of the configuration, how to listen, and the address and port to serve. "library" listens with Salt's own library,
"socket" with msgpack alone on the socket of the bus, as listeners in other languages do. The names of the families are those of salt-exporter."""

import collections
import http.server
import os
import socket
import sys
import threading
import time

import salt.config
import salt.utils.event
import salt.utils.msgpack as msgpack

opts = salt.config.client_config(os.path.join(sys.argv[1], "master"))
lock = threading.Lock()
counts = collections.Counter()
gauges = {}

# A listener in a typed language reads each field as one type.
TYPES = {
    "arg": list,
    "fun": str,
    "fun_args": list,
    "id": str,
    "jid": str,
    "minions": list,
    "missing": list,
    "out": str,
    "retcode": int,
    "schedule": str,
    "success": bool,
    "tgt_type": str,
    "user": str,
    "_stamp": str,
}
# Commands ask the first while they wait, and the test waits with the others.
UNCOUNTED = {"saltutil.find_job", "test.version", "runner.event.send"}


def state_of(data):
    fun, args = data.get("fun"), data.get("arg") or data.get("fun_args") or []
    if fun == "state.highstate" or fun == "state.apply" and not args:
        return "highstate"
    if fun not in ("state.apply", "state.sls", "state.single"):
        return ""
    return args[0] if args and isinstance(args[0], str) else ""


def line(family, **labels):
    return "{}{{{}}}".format(family, ",".join('{}="{}"'.format(k, v) for k, v in labels.items()))


def count(tag, data):
    part = tag.split("/")
    if part[0] == "probe":
        counts[line("probes_total", tag=tag)] += 1
    if len(part) < 4 or part[0] != "salt" or part[1] not in ("job", "run", "beacon") or data.get("fun") in UNCOUNTED:
        return
    for field, kind in TYPES.items():
        if field in data and type(data[field]) is not kind:
            counts[line("malformed_total", module=part[1], what=part[3], field=field, type=type(data[field]).__name__)] += 1
    if part[1] == "beacon":
        if part[3] == "status":
            gauges[line("salt_health_last_heartbeat", minion=data["id"])] = int(time.time())
        return
    fun, state = data.get("fun"), state_of(data)
    if part[3] == "new":
        counts[line("salt_new_job_total", function=fun, state=state)] += 1
        counts[line("salt_expected_responses_total", function=fun, state=state)] += len(data.get("minions", []))
    elif part[3] == "ret":
        minion = data.get("id") or "master"
        success, family = data.get("success"), "salt_function_responses_total"
        if data.get("schedule"):
            success, family = success and data.get("retcode") == 0, "salt_scheduled_job_return_total"
        counts[line(family, function=fun, state=state, success=success)] += 1
        counts[line("salt_responses_total", minion=minion, success=success)] += 1
        gauges[line("salt_function_status", minion=minion, function=fun, state=state)] = int(bool(success))


def from_library():
    bus = salt.utils.event.get_event("master", sock_dir=opts["sock_dir"], opts=opts, listen=True)
    while True:
        got = bus.get_event(wait=1, full=True, auto_reconnect=True)
        if got is not None:
            yield got["tag"], got["data"]


def from_socket():
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as conn:
                conn.connect(os.path.join(opts["sock_dir"], "master_event_pub.ipc"))
                stream = msgpack.Unpacker(raw=True)
                while True:
                    got = conn.recv(1 << 16)
                    if not got:
                        break
                    stream.feed(got)
                    for frame in stream:
                        tag, body = frame[b"body"].split(b"\n\n", 1)
                        yield tag.decode(), msgpack.unpackb(body, raw=False)
        except OSError:
            pass
        time.sleep(0.2)


def listen():
    try:
        for tag, data in {"library": from_library, "socket": from_socket}[sys.argv[2]]():
            with lock:
                count(tag, data)
    except BaseException:  # the test sees that it ended
        import traceback

        traceback.print_exc()
        os._exit(1)


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with lock:
            lines = sorted("{} {}".format(k, v) for k, v in list(counts.items()) + list(gauges.items()))
        accepted = len(os.listdir(os.path.join(opts["pki_dir"], "minions")))
        body = "\n".join(lines + ["salt_health_minions_total {}".format(accepted), ""]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


threading.Thread(target=listen, daemon=True).start()
http.server.ThreadingHTTPServer((sys.argv[3], int(sys.argv[4])), Metrics).serve_forever()
