"""The worker's loop: it serves requests until the pipe ends."""

import gc
import os
import resource
import signal
import sys

from renderworker import jinja, pymodule, structured
from renderworker.channel import Channel, TooLarge
from renderworker.context import Parts
from renderworker.errors import RenderError


def main(memory, output):
    # The pipes move to other descriptors, so that the output of a template's
    # module goes to the log.
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.setrecursionlimit(3000)
    gc.freeze()  # what is loaded now stays
    channel = Channel(source, sink, output)
    server = Server(channel)
    channel.serve = server.serve
    channel.send({"op": "ready", "python": sys.version.split()[0]})
    while True:
        server.serve(channel.receive())


class Server:
    def __init__(self, channel):
        self.channel = channel
        self.parts = Parts()
        self.jinja = jinja.Renderer(channel)

    def serve(self, request):
        self.parts.store(request.get("put") or {}, request.get("drop") or ())
        self.channel.arm(request["seconds"])
        try:
            answer = self.run(request)
        except RenderError as exc:
            answer = {"op": "error", "text": str(exc), "line": exc.line}
        except MemoryError:
            answer = {"op": "memory"}
        try:
            self.channel.send(answer)
        except TooLarge:
            self.channel.send({"op": "large"})
        except MemoryError:
            self.channel.send({"op": "memory"})
        except (ValueError, RecursionError, UnicodeEncodeError) as exc:
            self.channel.send({"op": "error", "text": f"result can't be sent: {exc}", "line": 0})
        self.channel.disarm()

    def run(self, request):
        kind = request["kind"]
        if kind == "yaml":
            return {"op": "done", "value": structured.render_yaml(request["data"])}
        if kind == "json":
            return {"op": "done", "value": structured.render_json(request["data"])}
        source = text(request["data"])
        if kind == "jinja":
            out, notes = self.jinja.render(source, request, self.parts)
            return {"op": "done", "value": out, "notes": notes}
        if kind == "py":
            return {"op": "done", "value": pymodule.render(source, request, self.parts, self.channel)}
        raise RenderError(f"worker has no renderer {kind}")


def text(data):
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise RenderError(str(exc)) from None
