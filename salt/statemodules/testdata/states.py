"""Runs the state functions of Salt's own module saltmod on prepared answers of minions and runners, which come as JSON on standard input."""
import json
import sys
import types

import salt.modules.saltutil as saltutil
import salt.states.saltmod as saltmod
import salt.utils.args
import salt.utils.event
import salt.utils.state


class Sorted(list):
    """A set with an order, so that texts made of it are the same in each run."""

    def add(self, item):
        if item not in self:
            self.append(item)
            self.sort()


class Unsorted(Sorted):
    def add(self, item):
        if item not in self:
            self.append(item)


class Client:
    def __init__(self, case, word):
        self.case = case
        self.functions = {}
        for name, params in case.get("functions", {}).items():
            space = {}
            exec("def fun({}): pass".format(", ".join(params)), space)
            self.functions[name] = space["fun"]
        self.word = word

    def cmd(self, name, arg=None, pub_data=None, kwarg=None, **_):
        if name not in self.functions:
            raise KeyError(name)
        self.case["calls"].append([self.word, name, list(arg), dict(kwarg)])
        return dict(self.case["returns"][name], jid="JID")


class Events:
    def __init__(self, case):
        self.case = case

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get_event(self, full=True):
        clock.now += 5
        if self.case["seen"]:
            tag, data = self.case["seen"].pop(0)
            return {"tag": tag, "data": data}
        return None


clock = types.SimpleNamespace(now=0)
clock.time = lambda: clock.now


def saltutil_cmd(case):
    def cmd(tgt, fun, arg=(), kwarg=None, **kw):
        if "batch" not in kw and "subset" not in kw:
            case["calls"].append([fun, tgt, kw["tgt_type"], salt.utils.args.condition_input(arg, kwarg)])
        if case.get("error"):
            raise Exception(case["error"])
        out = json.loads(json.dumps(case.get("remote", {})))
        for id_, a in case.get("minions", {}).items():
            if "silent" not in a and "batch" in kw:
                out[id_] = {"out": "highstate", "ret": a["ret"]}
            elif "silent" not in a:
                out[id_] = {"ret": a["ret"], "retcode": a.get("retcode", 0), "jid": "JID", "out": "highstate"}
            elif "batch" in kw:
                out[id_] = {"out": "highstate", "ret": {}}
            elif kw.get("expect_minions"):
                out[id_] = {"failed": True}
        for id_ in case.get("missing", []):
            out[id_] = {"failed": True}
        return out

    return cmd


def run(case):
    case["calls"], case["events"] = [], []
    clock.now = 0
    # In salt.state the first set is of failures, joined in any order; the second one of unchanged minions, which come as they are.
    sets = [Sorted, Unsorted]
    saltmod.set = lambda: (sets.pop(0) if sets else Sorted)()
    saltmod.time = clock
    opts = {
        "test": case.get("test", False), "__role": "master", "file_client": "local", "sock_dir": "", "master_job_cache": "x", "user": "root",
        "failhard": case.get("failhard", False), "color": False, "extension_modules": "", "optimization_order": [0], "state_output": "full",
    }
    saltmod.__opts__ = saltutil.__opts__ = opts
    saltmod.__orchestration_jid__ = "ORCH"
    saltmod.__env__ = "base"
    saltmod.__user__ = "root"
    saltmod.__utils__ = {"state.check_result": salt.utils.state.check_result}
    saltmod.__salt__ = {
        "saltutil.cmd": saltutil_cmd(case), "saltutil.runner": saltutil.runner, "saltutil.wheel": saltutil.wheel,
        "test.is_good": lambda v: v == "good",
    }
    saltutil._master_user_runas = lambda _: None
    saltutil.salt.runner = types.SimpleNamespace(RunnerClient=lambda _: Client(case, "runner"))
    saltutil.salt.wheel = types.SimpleNamespace(WheelClient=lambda _: Client(case, "wheel"))
    salt.utils.event.fire_args = lambda opts, jid, data, prefix="": case["events"].append([f"salt/{prefix}/{jid}/args", json.loads(json.dumps(data))])
    salt.utils.event.get_event = lambda *_, **__: Events(case)
    try:
        ret = getattr(saltmod, case["fun"].split(".")[1])(**case["args"])
    except Exception as exc:  # pylint: disable=broad-except
        ret = {"exception": type(exc).__name__}
    return {"ret": ret, "events": case["events"], "calls": case["calls"]}


for c in json.load(sys.stdin):
    print(json.dumps(run(c), ensure_ascii=False))
