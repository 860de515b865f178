"""A pytest plugin: Salt's own tests against a master that isn't Salt's.

What it does: keeps all helper servers of salt-factories on 127.0.0.1, leaves
out what exclude.txt names, writes each test's outcome as a line of JSON, and,
for our master, rewrites each master's config file as it is written.
"""

import contextlib
import fnmatch
import json
import os
import subprocess
import sys
import time

import pytest
from pytestshellutils.utils import ports

SLOW = float(os.environ.get("SALTSUITE_SLOW", "3"))
OURS = os.environ.get("SALTSUITE_SIDE") == "ours"
RESULTS = os.environ.get("SALTSUITE_RESULTS")
EXCLUDE = os.environ.get("SALTSUITE_EXCLUDE")

# What salt-factories puts into every master to listen to it from inside; forwarder.py does that
# from outside.
DROP = ("engines_dirs", "log_handlers_dirs")
# No secret of anybody: the masters of a test live on loopback for a minute.
CLUSTER_SECRET = "a-secret-of-the-referee-for-loopback-only"


def our_config(config):
    """Changes a master's config in place into one that our master takes."""
    for name in DROP:
        config.pop(name, None)
    config["engines"] = [e for e in config.get("engines") or [] if e != "pytest"]
    if not config["engines"]:
        del config["engines"]
    # Salt's and the suite's own Python runs beside our master.
    config.setdefault("python_host", sys.executable)
    # Ports that Salt's master hasn't: by default the same for all masters of an address.
    for name in ("health_listen", "metrics_listen"):
        config[name] = f"127.0.0.1:{ports.get_unused_localhost_port()}"
    # Salt's own clients (LocalClient, RunnerClient, get_event) need it.
    config["enable_clear_commands"] = True
    if config.get("cluster_id") and len(config.get("cluster_secret") or "") < 16:
        config["cluster_secret"] = CLUSTER_SECRET


def former_key(pki):
    """Puts the key of a former master into pki_dir, which the master takes over: tests copy
    master.pem to a second master."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = os.path.join(pki, "master.pem")
    if os.path.exists(private):
        return
    os.makedirs(pki, mode=0o700, exist_ok=True)
    key = rsa.generate_private_key(65537, 2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    with open(os.open(private, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as f:
        f.write(text)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with open(os.path.join(pki, "master.pub"), "wb") as f:
        f.write(public)


def start_again_after_failures():
    """Makes a test that fails while it has stopped a daemon start it again: the tests after it use
    the same one."""
    from pytestshellutils import shell

    stopped = shell.Daemon.stopped

    @contextlib.contextmanager
    def stopped_for_a_time(self, *args, **kwargs):
        failure = None
        with stopped(self, *args, **kwargs) as daemon:
            try:
                yield daemon
            except BaseException as exc:  # also of pytest.fail and pytest.skip
                failure = exc
        if failure is not None:
            raise failure

    shell.Daemon.stopped = stopped_for_a_time


def pytest_configure(config):
    import saltfactories.bases as bases
    import saltfactories.daemons.master as master
    import saltfactories.manager as manager
    import saltfactories.plugins.log_server as log_server

    start = log_server.LogServer.start

    def start_on_loopback(self):
        self.log_host = "127.0.0.1"
        start(self)

    log_server.LogServer.start = start_on_loopback

    # Salt asks PAM with a Python that may not have what it needs; the venv's has.
    common = manager.FactoriesManager.final_common_config_tweaks

    def with_python(self, config, role):
        common(self, config, role)
        if role == "master" and not OURS:
            config.setdefault("auth.pam.python", os.environ["SALTSUITE_PAM"])

    manager.FactoriesManager.final_common_config_tweaks = with_python

    import saltfactories.plugins.event_listener as event_listener

    listen = event_listener.EventListener.__attrs_post_init__

    def listen_on_loopback(self):
        self.host, self.address = "127.0.0.1", f"tcp://127.0.0.1:{self.port}"
        listen(self)

    event_listener.EventListener.__attrs_post_init__ = listen_on_loopback

    # A busy machine is slow; that is nobody's failure. What a command itself
    # is told (--timeout) stays Salt's, only the test waits longer for it.
    slow = SLOW
    bases.SALT_TIMEOUT_FLAG_INCREASE *= 2 * slow
    post_init = manager.FactoriesManager.__attrs_post_init__

    def more_time(self):
        post_init(self)
        self.start_timeout *= slow

    manager.FactoriesManager.__attrs_post_init__ = more_time
    start_again_after_failures()
    if not OURS:
        return
    write = bases.SaltDaemon.write_config.__func__

    folders = {}

    @classmethod
    def write_config(cls, config):
        if issubclass(cls, master.SaltMaster):
            our_config(config)
            pki = os.path.join(config["root_dir"], config["pki_dir"])
            if not config.get("cluster_id"):
                former_key(pki)
            folder = os.path.dirname(config["conf_file"])
            folders[os.path.join(pki, "minions")] = folder
            if config.get("cluster_id") and config["interface"] < min(config["cluster_peers"]):
                # Tests start the masters of a cluster one after the other; the first may not wait.
                with open(os.path.join(folder, "found"), "w", encoding="utf-8"):
                    pass
        return write(cls, config)

    bases.SaltDaemon.write_config = write_config
    salt_key = os.path.join(os.path.dirname(os.environ["SALTSUITE_PAM"]), "salt-key")
    remove = os.remove

    def remove_key(path, **kwargs):
        """Also deletes the key that a test takes back by deleting its file."""
        remove(path, **kwargs)
        folder, name = os.path.split(path)
        if folder in folders:
            command = [sys.executable, salt_key, "-c", folders[folder], "-y", "-d", name]
            subprocess.run(command, timeout=60 * SLOW, check=False, stdout=subprocess.DEVNULL)

    os.remove = remove_key


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    if OURS:
        # Salt's tests clean up by deleting key files, which to our master are
        # but an export: it is told with its own salt-key too.
        registry = pytest.helpers._registry
        original = registry["remove_stale_minion_key"]

        def remove_stale_minion_key(master, minion_id):
            original(master, minion_id)
            if master.is_running():
                master.salt_key_cli().run("-y", "-d", minion_id)

        registry["remove_stale_minion_key"] = remove_stale_minion_key
    # Outside a box no test makes users of the system: where tests sign in with
    # the back end "auto", a name is enough.
    if os.environ.get("SALTSUITE_BOX"):
        return
    from tests.support.pytest.helpers import TestAccount

    TestAccount.__enter__ = lambda self: self
    TestAccount.__exit__ = lambda self, *args: None


def excluded():
    rules = []
    if EXCLUDE:
        with open(EXCLUDE, encoding="utf-8") as f:
            for line in f:
                line = line.split("  #")[0].strip()
                if line and not line.startswith("#"):
                    rules.append(line)
    return rules


def matches(nodeid, rule):
    name = nodeid.removeprefix("tests/pytests/")
    # Square brackets of parameters are no sets of characters here.
    rule = rule.replace("[", "[[]")
    return any(fnmatch.fnmatchcase(name, rule + end) for end in ("", "::*", "[[]*", "/*"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    rules = excluded()
    only = [r for r in os.environ.get("SALTSUITE_ONLY", "").split("\n") if r]
    keep, gone = [], []
    for item in items:
        out = any(matches(item.nodeid, r) for r in rules)
        if only:
            out = out or not any(matches(item.nodeid, r) for r in only)
        (gone if out else keep).append(item)
    items[:] = keep
    if gone:
        config.hook.pytest_deselected(items=gone)
    for item in keep:
        marks = [m for m in item.iter_markers() if m.name in ("timeout", "timeout_unless_on_windows") and m.args]
        if marks:
            kwargs = {**({"func_only": True} if marks[0].name != "timeout" else {}), **marks[0].kwargs}
            item.add_marker(pytest.mark.timeout(marks[0].args[0] * SLOW, **kwargs), append=False)
        elif "/scenarios/" not in item.nodeid:
            # What Salt's conftest gives to all others.
            item.add_marker(pytest.mark.timeout(90 * SLOW, func_only=True), append=False)
    emit({"collected": [i.nodeid for i in keep]})


def emit(row):
    if RESULTS:
        with open(RESULTS, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid, location):
    emit({"start": nodeid, "at": time.time()})


def pytest_runtest_logreport(report):
    row = {"test": report.nodeid, "when": report.when, "outcome": report.outcome, "seconds": round(report.duration, 2)}
    if hasattr(report, "wasxfail"):
        row["xfail"] = True
    if report.outcome == "failed":
        row["text"] = str(report.longrepr)[-6000:]
    elif report.outcome == "skipped":
        row["text"] = str(report.longrepr)[-300:]
    emit(row)


def pytest_collectreport(report):
    if report.failed:
        emit({"broken": report.nodeid, "text": str(report.longrepr)[-3000:]})
