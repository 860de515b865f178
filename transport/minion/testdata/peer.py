"""The minion's end with the libzmq that a Salt release ships.

peer.py req URL SIZE...      one REQ per round, echoes of the given sizes, prints each length
peer.py pair URL IDENTITY    two REQ sockets with one identity, prints both replies
peer.py sub URL TOPIC...     SUB; prints "ready", then each message: frames as hex, one line
"""
import sys

import zmq

kind, url = sys.argv[1:3]
ctx = zmq.Context()
ctx.setsockopt(zmq.LINGER, 0)


def req(identity=None):
    s = ctx.socket(zmq.REQ)
    s.setsockopt(zmq.RCVTIMEO, 20000)
    if identity:
        s.setsockopt_string(zmq.IDENTITY, identity)
    s.connect(url)
    return s


if kind == "req":
    s = req("salt-req/minion/m1/1/0")
    for size in map(int, sys.argv[3:]):
        s.send(b"x" * size)
        reply = s.recv_multipart()
        assert reply == [b"re:" + b"x" * size], len(reply)
        print(len(reply[0]), flush=True)
elif kind == "pair":
    a, b = req(sys.argv[3]), req(sys.argv[3])
    a.send(b"a1")
    print(a.recv().decode())
    b.send(b"b1")
    print(b.recv().decode())
    a.send(b"a2")
    b.send(b"b2")
    print(b.recv().decode())
    print(a.recv().decode(), flush=True)
elif kind == "sub":
    s = ctx.socket(zmq.SUB)
    s.setsockopt(zmq.RCVTIMEO, 20000)
    for topic in sys.argv[3:]:
        s.setsockopt_string(zmq.SUBSCRIBE, topic)
    s.connect(url)
    print("ready", flush=True)
    while True:
        message = s.recv_multipart()
        print(" ".join(f.hex() for f in message), flush=True)
        if message[-1] == b"unsubscribe":
            for topic in sys.argv[3:]:
                s.setsockopt_string(zmq.UNSUBSCRIBE, topic)
            s.setsockopt_string(zmq.SUBSCRIBE, "new")
        if message[-1].endswith(b"end"):
            break
