"""Orders a master's functions with the clients of Salt's own library, then runs lines of Salt's own commands; one line of JSON for each step.

The arguments are the folder of the configuration and the lines, as JSON. Each line runs in a process of its own that is forked from this one, so
that Salt is imported once. JID in a line is the job id of the last --async."""

import json
import os
import re
import sys
import tempfile
import time

import salt.auth
import salt.cli.run
import salt.cli.salt
import salt.client
import salt.config
import salt.output
import salt.runner
import salt.scripts
import salt.utils.event
import salt.wheel

conf = os.path.join(sys.argv[1], "master")
opts = salt.config.client_config(conf)


def step(name, call):
    try:
        got = call()
    except Exception as exc:  # pylint: disable=broad-except
        got = "{}: {}".format(type(exc).__name__, exc)
    print(json.dumps([name, got], default=str), flush=True)
    return got


def with_client(use):
    client = salt.client.LocalClient(conf, mopts=dict(opts))
    try:
        return use(client)
    finally:
        client.destroy()


def local(**kwargs):
    return with_client(lambda client: client.run_job("web-a", "test.ping", **kwargs))


def later(client):
    """The job cache of a job that nobody waited for."""
    jid = client.cmd_async("web-*", "test.ping")
    for _ in range(200):
        kept = client.get_cache_returns(jid)
        if len(kept) == 2:
            break
        time.sleep(0.05)
    return kept


def run_and_gather(client):
    job = client.run_job("web-*", "test.echo", ["x"], listen=True)
    return sorted({minion for ret in client.get_cli_returns(job["jid"], job["minions"]) for minion in ret})


def round_trip():
    """Fires events and hears them."""
    heard = []
    with salt.utils.event.get_master_event(opts, opts["sock_dir"], listen=True) as bus:
        bus.subscribe("my/")
        # A connection that the master has not accepted yet hears nothing; so it is with Salt's master.
        for _ in range(60):
            bus.fire_event({}, "my/probe")
            if bus.get_event(wait=1, tag="my/probe"):
                break
        bus.fire_event({"text": "\u00e9", "bytes": b"\xff", "n": 2**40, "deep": [{"a": None}]}, "my/own")
        heard.append(bus.get_event(wait=20, tag="my/own", full=True))
        bus.fire_master({"a": 1}, "my/master")
        heard.append(bus.get_event(wait=20, tag="fire_master"))
        bus.fire_event({"large": "x" * (1 << 19), "end": True}, "my/large")
        heard.append(len(bus.get_event(wait=20, tag="my/large")["large"]))
    heard[0]["data"].pop("_stamp")
    return [heard[0]["tag"], sorted(heard[0]["data"].items(), key=str), heard[1]["tag"], heard[1]["data"], heard[2]]


def line(words):
    """Runs a command as its program does; what it prints and its exit code."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = [words[0], "-c", sys.argv[1]] + words[1:]
            main = {"salt": salt.scripts.salt_main, "salt-run": salt.scripts.salt_run, "salt-key": salt.scripts.salt_key}
            main[words[0]]()
            code = 0
        except SystemExit as exc:
            code = exc.code or 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    texts = []
    for f in (out, err):
        f.seek(0)
        texts.append(f.read().decode())
        f.close()
    return texts + [code]


step("local client", local)
who = {"eauth": "auto", "username": "alice", "password": "pw"}
step("local client, eauth", lambda: local(**who))
token = step("mk_token", lambda: salt.auth.Resolver(opts).mk_token(dict(who)))
token = token["token"] if isinstance(token, dict) else ""
step("get_token", lambda: salt.auth.Resolver(opts).get_token(token))
step("local client, token", lambda: local(token=token))
step("local client, wrong token", lambda: local(token="0" * 64))
step("cmd", lambda: with_client(lambda c: sorted(c.cmd("web-*", "test.ping").items())))
step("cmd_iter", lambda: with_client(lambda c: sorted(str(r) for r in c.cmd_iter(["web-a", "web-b"], "test.echo", ["x"], tgt_type="list"))))
step("cmd_async, get_cache_returns", lambda: with_client(lambda c: sorted((i, r["ret"]) for i, r in later(c).items())))
step("run_job, get_cli_returns", lambda: with_client(run_and_gather))
step("events", round_trip)
runner = salt.runner.RunnerClient(dict(opts))
step("runner client", lambda: runner.cmd_async({"fun": "test.arg", "kwarg": {"arg": ["x"], "kwarg": {}}, "token": token}))
step("runner client, eauth", lambda: runner.cmd_async(dict(who, fun="test.metasyntactic")))
step("runner client, wrong token", lambda: runner.cmd_async({"fun": "test.arg", "token": "0" * 64}))
step("runner client, waiting", lambda: runner.cmd_sync(dict(who, fun="test.arg", arg=["x"])))
wheel = salt.wheel.WheelClient(dict(opts))
step("wheel client", lambda: wheel.cmd_sync({"fun": "key.list_all", "token": token})["data"]["return"]["minions"])
step("wheel client, eauth", lambda: wheel.cmd_sync(dict(who, fun="key.list", match="accepted"))["data"]["return"])

jid = ""
for text in json.loads(sys.argv[2]):
    got = step(text, lambda: line([jid if word == "JID" else word for word in text.split()]))
    found = re.search(r"job ID: (\d{20})", str(got))
    jid = found.group(1) if found else jid
