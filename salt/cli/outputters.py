"""Print results with Salt's outputters: frames of a length and msgpack come in on standard input, text goes out on descriptor 3."""

import logging
import os
import struct
import sys

import msgpack

LENGTH = struct.Struct(">I")
source, sink = sys.stdin.buffer, os.fdopen(3, "wb")


def receive():
    head = source.read(4)
    if len(head) < 4:
        sys.exit(0)
    return msgpack.unpackb(source.read(LENGTH.unpack(head)[0]), raw=False, strict_map_key=False, unicode_errors="surrogateescape")


def send(message):
    raw = msgpack.packb(message, use_bin_type=True, unicode_errors="surrogateescape")
    sink.write(LENGTH.pack(len(raw)) + raw)
    sink.flush()


first = receive()

import salt.config  # noqa: E402
import salt.loader  # noqa: E402

# This master keeps its keys elsewhere.
logging.getLogger("salt.config").addFilter(lambda record: "cluster pki" not in str(record.msg))
opts = salt.config.client_config(first["conf_file"]) if os.path.exists(first["conf_file"]) else salt.config.master_config(None)
opts.update(first["opts"])
outputters = salt.loader.outputters(opts)
while True:
    message = receive()
    try:
        if message["name"] not in outputters:
            send({"unknown": True})
            continue
        text = outputters[message["name"]](message["value"], _retcode=message["retcode"])
        send({"text": "" if text is None else str(text)})
    except Exception as exc:
        send({"error": f"{type(exc).__name__}: {exc}"})
