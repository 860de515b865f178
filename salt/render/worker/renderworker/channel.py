"""Messages over two pipes: four bytes of length, then msgpack."""

import signal
import struct

import msgpack

LENGTH = struct.Struct(">I")
SPARE_SECONDS = 5  # added to the time after which the kernel ends a worker without a master


class TooLarge(Exception):
    """A message is longer than the master accepts."""


def unpack(raw):
    return msgpack.unpackb(raw, raw=False, strict_map_key=False, ext_hook=_extension)


def _extension(code, data):
    return None if code == 79 else data


def pack(value):
    try:
        return msgpack.packb(value, use_bin_type=True, default=_plain, unicode_errors="surrogatepass")
    except OverflowError:
        return msgpack.packb(_portable(value), use_bin_type=True, default=_plain, unicode_errors="surrogatepass")


def _plain(value):
    if isinstance(value, (set, frozenset)):
        return tuple(value)
    if hasattr(value, "isoformat"):
        return value.strftime("%Y%m%dT%H:%M:%S.%f")
    return str(value)


def _portable(value):
    """Turn integers of more than 64 bits into text, because msgpack has none."""
    if isinstance(value, dict):
        return {_portable(k): _portable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_portable(v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


class Channel:
    def __init__(self, source, sink, limit):
        self.source, self.sink, self.limit = source, sink, limit
        self.seconds = 0
        self.serve = None  # answers a message other than a reply: a render inside a call

    def receive(self):
        head = self.source.read(LENGTH.size)
        if len(head) < LENGTH.size:
            raise SystemExit(0)
        (size,) = LENGTH.unpack(head)
        raw = self.source.read(size)
        if len(raw) < size:
            raise SystemExit(0)
        return unpack(raw)

    def send(self, message):
        raw = pack(message)
        if len(raw) > self.limit:
            raise TooLarge(f"result of {len(raw)} bytes")
        self.sink.write(LENGTH.pack(len(raw)) + raw)
        self.sink.flush()

    def ask(self, message):
        """Send a question and return the answer's message."""
        self.send(message)
        self.disarm()
        while True:
            answer = self.receive()
            if answer["op"] == "answer":
                self.arm(self.seconds)
                return answer
            self.serve(answer)
            self.disarm()

    def arm(self, seconds):
        self.seconds = seconds
        signal.setitimer(signal.ITIMER_REAL, seconds + SPARE_SECONDS if seconds else 0)

    def disarm(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
