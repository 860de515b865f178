"""Runs Salt's own commands, each in a fork of this process, so that the library is imported once.

Requests come as lines of JSON on descriptor 3: {"id", "prog", "path", "args", "env", "unread", "stdin", "stdout", "stderr"},
the last three being files. With "unread", standard output is a pipe that nobody reads. The answer is a line "id status" on descriptor 4, status as os.waitpid gives it.
"""

import json
import os
import signal
import sys

import salt.scripts
import salt.cli.cp
import salt.cli.key
import salt.cli.run
import salt.cli.salt
import salt.client
import salt.key
import salt.output
import salt.runner
import salt.wheel

REQUESTS, REPLIES = 3, 4


def serve():
    """Answers requests until there are no more; returns a request only in the process that has to run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with os.fdopen(REQUESTS, "r") as requests:
        for line in requests:
            request = json.loads(line)
            if os.fork():
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pid = os.fork()
            if pid == 0:
                return request
            _, status = os.waitpid(pid, 0)
            os.write(REPLIES, f"{request['id']} {status}\n".encode())
            os._exit(0)
    sys.exit(0)


def redirect(path, flags, descriptor):
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


request = serve()
os.close(REPLIES)
redirect(request["stdin"], os.O_RDONLY, 0)
if request["unread"]:
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(reader)
    os.close(writer)
else:
    redirect(request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1)
redirect(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 2)
os.environ.update(request["env"])
sys.argv = [request["path"], *request["args"]]
sys.exit(getattr(salt.scripts, request["prog"].replace("-", "_") + ("_main" if request["prog"] == "salt" else ""))())
