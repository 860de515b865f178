"""Orders a master's functions with the clients of Salt's own library; one line of JSON for each step."""

import json
import os
import sys

import salt.auth
import salt.client
import salt.config
import salt.runner
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


def local(**kwargs):
    client = salt.client.LocalClient(conf, mopts=dict(opts))
    try:
        return client.run_job("web-a", "test.ping", **kwargs)
    finally:
        client.destroy()


step("local client", local)
who = {"eauth": "auto", "username": "alice", "password": "pw"}
step("local client, eauth", lambda: local(**who))
token = step("mk_token", lambda: salt.auth.Resolver(opts).mk_token(dict(who)))
token = token["token"] if isinstance(token, dict) else ""
step("get_token", lambda: salt.auth.Resolver(opts).get_token(token))
step("local client, token", lambda: local(token=token))
step("local client, wrong token", lambda: local(token="0" * 64))
runner = salt.runner.RunnerClient(dict(opts))
step("runner client", lambda: runner.cmd_async({"fun": "test.arg", "kwarg": {"arg": ["x"], "kwarg": {}}, "token": token}))
step("runner client, eauth", lambda: runner.cmd_async(dict(who, fun="test.metasyntactic")))
step("runner client, wrong token", lambda: runner.cmd_async({"fun": "test.arg", "token": "0" * 64}))
wheel = salt.wheel.WheelClient(dict(opts))
step("wheel client", lambda: wheel.cmd_sync({"fun": "key.list_all", "token": token})["data"]["return"]["minions"])
step("wheel client, eauth", lambda: wheel.cmd_sync(dict(who, fun="key.list", match="accepted"))["data"]["return"])
