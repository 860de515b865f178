"""The Python side of the host: a fork server with Salt loaded, and its children.

The master starts this file in an interpreter that has Salt. File descriptor 3 is
the control socket: one msgpack message per packet, a request for a child carries
the child's own socket. A child speaks frames over that socket: four bytes of
length, then msgpack. Standard output belongs to nobody and reaches the log.
"""

import copy
import ctypes
import functools
import gc
import inspect
import logging
import os
import pickle
import re
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback

import msgpack

LENGTH = struct.Struct(">I")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MAX_LOG_TEXT = 8192  # characters of one record
MAX_LOG_RECORDS = 500  # of one call; of an engine, within LOG_PERIOD
LOG_PERIOD = 10  # seconds
BASE_NAME = "salt.loaded"
GENERATIONS = 20  # of processes that a call left


def unpack(raw):
    return msgpack.unpackb(raw, raw=False, strict_map_key=False, unicode_errors="surrogateescape")


def pack(value):
    try:
        return msgpack.packb(value, use_bin_type=True, default=_plain, unicode_errors="surrogateescape")
    except OverflowError:
        return msgpack.packb(_portable(value), use_bin_type=True, default=_plain, unicode_errors="surrogateescape")


def _plain(value):
    """What msgpack has no form for, as Salt's own messages carry it."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "isoformat"):
        return value.strftime("%Y%m%dT%H:%M:%S.%f")
    if isinstance(value, dict) or hasattr(value, "items"):
        return dict(value.items())
    if hasattr(value, "value") and callable(value.value):  # a named context of the loader
        return value.value()
    if hasattr(value, "__iter__") and not isinstance(value, (str, bytes)):
        return list(value)
    return str(value)


def _portable(value):
    """Integers that no 64 bits hold travel as their text."""
    if isinstance(value, dict):
        return {_portable(k): _portable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_portable(v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


PRCTL = ctypes.CDLL(None, use_errno=True).prctl


def die_with_parent():
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class TooLarge(Exception):
    """A result is longer than the master takes."""


class Channel:
    """A child's socket. A forked copy of the child has no part in it."""

    def __init__(self, sock, limit):
        self.sock, self.limit = sock, limit
        self.pid = os.getpid()
        self.lock = threading.RLock()

    def own(self):
        return os.getpid() == self.pid

    def receive(self):
        (size,) = LENGTH.unpack(self._read(LENGTH.size))
        return unpack(self._read(size))

    def _read(self, size):
        if not self.own():
            os._exit(0)
        out = bytearray()
        while len(out) < size:
            part = self.sock.recv(min(size - len(out), 1 << 20))
            if not part:
                os._exit(0)  # the master is gone, or wants no more
            out += part
        return bytes(out)

    def send(self, message):
        raw = pack(message)
        if len(raw) > self.limit:
            raise TooLarge(len(raw))
        if not self.own():
            os._exit(0)
        with self.lock:
            self.sock.sendall(LENGTH.pack(len(raw)) + raw)


class Records(logging.Handler):
    """Sends log records to the master, at most MAX_LOG_RECORDS for one call or, where that is endless, in LOG_PERIOD."""

    def __init__(self, send, level):
        super().__init__(level)
        self.send_record, self.left = send, MAX_LOG_RECORDS
        self.endless, self.since = False, 0
        self.held = None  # errors of a returner that are told with its failure, or later

    def emit(self, record):
        if self.held is not None and record.levelno >= logging.ERROR:
            self.held.append(record)
            return
        if self.endless and time.monotonic() - self.since > LOG_PERIOD:
            dropped, self.left, self.since = -self.left, MAX_LOG_RECORDS, time.monotonic()
            if dropped > 0:
                self.send_record(logging.WARNING, "clustermaster", f"{dropped} log records were left out: too many at once")
        self.left -= 1
        if self.left < 0:
            return
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[0]:
                text += "\n" + "".join(traceback.format_exception(*record.exc_info))
            self.send_record(record.levelno, record.name, text[:MAX_LOG_TEXT])
        except Exception:  # a record that can't be shown must not fail the call
            pass


class Printed:
    """What a module prints, as log records by lines."""

    def __init__(self, emit):
        self.emit, self.rest = emit, ""
        self.encoding, self.errors = "utf-8", "replace"

    def write(self, text):
        text = str(text)
        *lines, self.rest = (self.rest + text[:MAX_LOG_TEXT]).split("\n")
        for line in lines:
            if line.strip():
                self.emit(logging.INFO, "stdout", line)
        self.rest = self.rest[-MAX_LOG_TEXT:]
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False

    def fileno(self):
        return 1


class Terminal(Printed):
    """What a runner function prints: text for the operator's terminal, by lines."""

    def __init__(self, send, name):
        super().__init__(None)
        self.send, self.name, self.pid = send, name, os.getpid()

    def write(self, text):
        self.rest += str(text)
        head, newline, self.rest = self.rest.rpartition("\n")
        if newline or len(self.rest) > MAX_LOG_TEXT:
            self.show(head + newline)
        return len(str(text))

    def show(self, text):
        if os.getpid() != self.pid:  # of a process that the function forked
            os.write(1, text.encode("utf-8", "replace"))
            return
        while text:
            self.send({"op": "show", "kind": self.name, "value": text[: 1 << 16]})
            text = text[1 << 16 :]

    def end(self):
        self.show(self.rest)
        self.rest = ""


# Loaders look through the same folders for each minion; this remembers what they found.


class Scans:
    """File mappings by folders, good while no folder changes."""

    def __init__(self):
        self.kept = {}

    def changed(self):
        """Whether a folder did that every child needs."""
        return any(
            [_stamp(d) for d in key[1]] != scan.stamps for key, scan in self.kept.items() if key[0] in ("module", "pillar", "utils", "runners", "wheel")
        )

    def install(self, lazy):
        scan, scans = lazy._refresh_file_mapping, self

        def refresh(loader):
            key = (loader.tag, tuple(loader.module_dirs), tuple(sorted(loader.disabled)), tuple(loader.static_modules))
            stamps = [_stamp(d) for d in loader.module_dirs]
            found = scans.kept.get(key)
            if found is None or found.stamps != stamps:
                scan(loader)
                found = scans.kept[key] = Scan(stamps, loader)
            loader.file_mapping = dict(found.mapping)
            loader.suffix_map, loader.suffix_order = dict(found.suffixes), list(found.order)
            loader.__dict__["_host_scan"] = found

        def files(loader, mod_name):
            yield from loader.__dict__["_host_scan"].candidates(mod_name)

        lazy._refresh_file_mapping, lazy._iter_files = refresh, files


def _stamp(folder):
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


class Scan:
    def __init__(self, stamps, loader):
        self.stamps, self.mapping = stamps, loader.file_mapping
        self.suffixes, self.order = loader.suffix_map, loader.suffix_order
        self.own = None  # module name to Salt's own files that give it
        self.sites = [k for k, v in self.mapping.items() if not is_salts(v[0])]

    def candidates(self, module):
        """The files that may give a module of that name, in Salt's order: its own, those of a like name, others.

        Salt loads them all where none fits; a module's name can be told from its text."""
        if self.own is None:
            self.own = {}
            for name, found in self.mapping.items():
                if is_salts(found[0]):
                    for given in virtual_names(found[0]) or ():
                        self.own.setdefault(given, []).append(name)
        fits = [module] if module in self.mapping else []
        for name in self.own.get(module, []):
            if name != module:
                fits.append(name)
        for name in self.sites:  # their texts may change without a trace in the folder
            if name != module:
                names = virtual_names(self.mapping[name][0])
                if names is None or module in names:
                    fits.append(name)
        fits.sort(key=lambda k: 0 if k == module else 1 if module in k else 2)
        return fits


VIRTUAL = re.compile(r"""__virtualname__\s*=\s*["']([\w.-]+)["']|return\s+["']([\w.-]+)["']|__virtual_aliases__\s*=\s*([\[(][^\])]*[\])])""")


def virtual_names(path):
    """The names that a module's text gives it; None where it could be any."""
    if os.path.isdir(path):
        path = os.path.join(path, "__init__.py")
    if not path.endswith(".py"):
        return None
    text = text_of(path)
    if "__virtual" not in text:
        return set()
    names = set()
    for one, other, aliases in VIRTUAL.findall(text):
        names.update(filter(None, (one, other)))
        names.update(re.findall(r"""["']([\w.-]+)["']""", aliases))
    return names or (set() if is_salts(path) else None)


def text_of(path):
    """The text of a module's file, "" of one that can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


SALT = []  # Salt's own folder, with its separator


def is_salts(path):
    return path.startswith(SALT[0])


class Problem(Exception):
    """An error with a kind of its own: unknown, refused."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


@functools.lru_cache(maxsize=64)
def takes(function, name):
    """Whether a function of Salt's has a parameter of that name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


class Salt:
    """Salt as the fork server loads it: options, loaders."""

    def __init__(self, config):
        import salt.channel.client
        import salt.client
        import salt.client.mixins
        import salt.config
        import salt.exceptions
        import salt.loader
        import salt.loader.lazy
        import salt.payload
        import salt.pillar
        import salt.template
        import salt.utils.args
        import salt.utils.dictupdate
        import salt.utils.entrypoints
        import salt.utils.files
        import salt.utils.jinja
        import salt.utils.sdb
        import salt.utils.yaml
        import salt.version

        self.version = salt.version.__version__
        SALT[:] = [str(salt.loader.SALT_BASE_PATH) + os.sep]
        if int(self.version.split(".")[0]) not in (3006, 3007, 3008):
            raise Problem("refused", f"Salt {self.version} is not supported: 3006, 3007 and 3008 are")
        try:
            import salt.utils.secret

            salt.utils.secret.mask_pillar = _never(salt.utils.secret.mask_pillar)
        except ImportError:
            pass
        # Releases differ in whose id the functions of a pillar see in their options: the minion's or the master's.
        text = inspect.getsource(salt.pillar.Pillar.__init__)
        self.minions_own = re.search(r"minion_mods\(\s*([\w.]+)", text).group(1) == "self.opts"
        # This master keeps its keys elsewhere.
        logging.getLogger("salt.config").addFilter(lambda record: "cluster pki" not in str(record.msg))
        given = dict(config.get("opts") or {})
        conf = config.get("conf_file")
        if conf and os.path.exists(conf):
            self.opts = salt.config.master_config(conf)
            self.opts["config_dir"] = os.path.dirname(conf)
            self.opts.update(given)
        else:
            self.opts = salt.config.apply_master_config(given)
        if conf:
            # Salt's commands put their option there.
            self.opts.setdefault("config_dir", os.path.dirname(os.path.abspath(conf)))
        self.opts["__role"] = "master"
        self.opts["file_client"] = "local"
        # Where minions' keys are exported to; cluster_id has Salt's code look there.
        self.opts["cluster_pki_dir"] = self.opts.get("cluster_pki_dir") or self.opts["pki_dir"]
        orders_by_pipe()
        signs_by_pipe(self.opts["pki_dir"])
        pillars_unkept()
        self.opts.setdefault("grains", {})
        points = list(salt.utils.entrypoints.iter_entry_points("salt.loader"))
        every = salt.utils.entrypoints.iter_entry_points
        salt.utils.entrypoints.iter_entry_points = lambda group, name=None: (
            points if group == "salt.loader" and name is None else every(group, name)
        )
        quick_truth()
        self.lazy = salt.loader.lazy.LazyLoader
        self.as_salts = getattr(type(self.opts), "from_dict", dict)  # a class of its own as of 3008
        self.plain = self.opts.to_dict() if hasattr(self.opts, "to_dict") else dict(self.opts)
        self.packed = packed(self.plain)
        self.scans = Scans()
        self.scans.install(self.lazy)
        self.warm()

    def masters_minion(self):
        """Options as those of salt.minion.MasterMinion, in which a master's states run."""
        import salt.config

        opts = salt.config.minion_config(self.opts.get("conf_file"), ignore_config_errors=True, role="master")
        opts.update(self.opts)
        return opts

    def refresh(self):
        """Look through folders that changed, so that not each child does. Loading a module for the first time changes its folder."""
        if self.scans.changed():
            self.warm()
            gc.collect()
            gc.freeze()

    def warm(self):
        """Look through the folders once, and import what most modules import."""
        functions = Bound(self, {"id": "", "grains": {}, "pillar": {}}, None)
        for name in ("test.echo", "config.get", "pillar.get", "grains.get", "cmd.run_stdout", "file.file_exists"):
            functions.find("module", name)
        list(functions.ext_pillars._dict._iter_files("none"))
        forget_modules()

    def own_opts(self):
        """The master's options, in nothing the same as those of another minion."""
        return self.as_salts(pickle.loads(self.packed) if self.packed else copy.deepcopy(self.plain))


def forget_modules():
    """Forget what loaders have loaded: the next ones load all anew, under the same names."""
    for name in [name for name in sys.modules if LOADED.match(name)]:
        del sys.modules[name]
    Bound.count = 0


LOADED = re.compile(re.escape(BASE_NAME) + r"\d*\.")


def packed(value):
    """What pickle makes a deep copy of; None if a part of the value can't be pickled."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return None


def copied(value):
    """A deep copy: the quick way, if its parts can be pickled."""
    text = packed(value)
    return copy.deepcopy(value) if text is None else pickle.loads(text)


def quick_truth():
    """Salt 3008 asks on each loader's options whether there are any, and counts them all for the answer."""
    try:
        from salt.utils.optsdict import OptsDict
    except ImportError:  # releases before
        return
    if "__bool__" in vars(OptsDict):
        return

    def any_key(opts):
        layer = opts
        while layer is not None:
            if any(key in opts for key in [*layer._local, *(layer._base if layer._parent is None else ())][:8]):
                return True
            layer = layer._parent
        return len(opts) > 0

    OptsDict.__bool__ = any_key


MASKED = []  # states run here: pillar.get hides values, except in templates, as with Salt


def _never(var):
    """A context variable that is False in every context, unless states run."""

    class Unmasked:
        def get(self, *default):
            return var.get(*default) if MASKED else False

        def set(self, value):
            return var.set(value)

        def reset(self, token):
            return var.reset(token)

    return Unmasked()


CHILD = []  # the one that this process is


def asked(what, name, args, kwargs):
    if not CHILD:
        raise RuntimeError("the fork server orders nothing")
    return CHILD[0].ask(what, name, args, kwargs)


def asks():
    """Whether this process may ask the master: it is a child, and none that a module forked."""
    return bool(CHILD) and CHILD[0].channel.own()


class Orders:
    """Stands for a channel to port 4506: what a client would order there goes to the master by the child's own socket."""

    def __init__(self, opts):
        self.opts = opts

    def send(self, load, *_, **__):
        return asked("order", load["cmd"], [], load)

    def connect(self):
        return True

    def close(self):
        pass

    destroy = close

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def orders_by_pipe():
    """Have Salt's clients order of this master by the child's socket; ports need not be open for it."""
    import salt.channel.client
    import salt.client.mixins
    import salt.loader
    import salt.minion
    import salt.utils.args
    import salt.utils.minions
    from salt.exceptions import SaltInvocationError

    channels = salt.channel.client.ReqChannel
    factory = channels.factory

    def channel(opts, **kwargs):
        return Orders(opts) if kwargs.get("crypt") == "clear" else factory(opts, **kwargs)

    channels.factory = staticmethod(channel)

    sync, unsync = salt.client.mixins.SyncClientMixin, salt.client.mixins.AsyncClientMixin

    def low(client, fun, low, print_event=True, full_return=False):
        if not ("arg" in low and "kwarg" in low):
            order = {"kwargs": {k: v for k, v in low.items() if k != "fun"}, "by_name": True}
        else:
            order = {"args": list(low["arg"]), "kwargs": low["kwarg"]}
        order.update(user=low.get("__user__", ""), jid=low.get("__jid__", ""))
        done = asked("run", f"{client.client}.{fun}", [], order)
        if print_event and hasattr(client, "print_async_event"):
            client.print_async_event("ret", done)
        return done if full_return else done["return"]

    def cmd(client, fun, arg=None, pub_data=None, kwarg=None, print_event=True, full_return=False):
        for given, kinds, text in (
            (arg, (list, tuple), "arg must be formatted as a list/tuple"),
            (pub_data, dict, "pub_data must be formatted as a dictionary"),
            (kwarg, dict, "kwarg must be formatted as a dictionary"),
        ):
            if given is not None and not isinstance(given, kinds):
                raise SaltInvocationError(text)
        if not asked("has", f"{client.client}.{fun}", [], {}):
            raise KeyError(fun)
        args, named = [], dict(kwarg or {})
        for one in salt.utils.args.parse_input(arg or [], no_parse=client.opts.get("no_parse", [])):
            if isinstance(one, dict) and one.get("__kwarg__") is True:
                named.update({k: v for k, v in one.items() if k != "__kwarg__"})
            else:
                args.append(one)
        named.pop("__kwarg__", None)
        order = {"fun": fun, "arg": args, "kwarg": named}
        if pub_data and "user" in pub_data:
            order["__user__"] = pub_data["user"]
        return client.low(fun, order, print_event=print_event, full_return=full_return)

    def asynchronous(client, fun, low, user="UNKNOWN", pub=None, local=True):
        low = dict(low)
        if "arg" in low and "kwarg" in low:
            order = {"args": list(low["arg"]), "kwargs": low["kwarg"]}
        else:
            order = {"kwargs": {k: v for k, v in low.items() if k != "fun"}, "by_name": True}
        order.update(user=user, jid=(pub or {}).get("jid", ""))
        return asked("start", f"{client.client}.{fun}", [], order)

    sync.low, sync.cmd, unsync.asynchronous = low, cmd, asynchronous

    returners = salt.loader.returners

    @functools.wraps(returners)
    def with_jobs(*args, **kwargs):
        lazy = returners(*args, **kwargs)
        if CHILD:
            CHILD[0].stubs(lazy, "returner")
        return lazy

    salt.loader.returners = with_jobs

    minions = salt.utils.minions
    check, data = minions.CkMinions.check_minions, minions.get_minion_data

    def check_minions(self, expr, tgt_type="glob", delimiter=":", *args, **kwargs):
        if not asks():
            return check(self, expr, tgt_type, delimiter, *args, **kwargs)
        found = asked("targets", "", [], {"tgt": "" if expr is None else expr, "tgt_type": tgt_type, "delimiter": delimiter})
        if found["incomplete"]:
            logging.getLogger("clustermaster").warning("a target was resolved without all minions' data: %s", found["incomplete"])
        return {"minions": found["minions"], "missing": found["missing"], "ssh_minions": False}

    def get_minion_data(minion, opts):
        if minion is None or not asks():
            return data(minion, opts)
        grains, pillar = (asked("runner", f"cache.{kind}", [[minion]], {"tgt_type": "list"}).get(minion, {}) for kind in ("grains", "pillar"))
        return minion, grains, pillar

    minions.CkMinions.check_minions, minions.get_minion_data = check_minions, get_minion_data


def signs_by_pipe(pki_dir):
    """Have the master sign what names its master.pem, and verify what names its master.pub: the cluster's key is in no file there."""
    import salt.crypt

    sign, verify = salt.crypt.sign_message, salt.crypt.verify_signature

    def master(path, name):
        return asks() and os.path.normpath(path) == os.path.join(pki_dir, name)

    def algorithm(given, at, kwargs):
        return kwargs.get("algorithm") or (given[at] if len(given) > at else "PKCS1v15-SHA1")

    def sign_message(privkey_path, message, *args, **kwargs):
        if not master(privkey_path, "master.pem"):
            return sign(privkey_path, message, *args, **kwargs)
        return asked("sign", algorithm(args, 1, kwargs), [_bytes(message)], {})

    def verify_signature(pubkey_path, message, signature, *args, **kwargs):
        if not master(pubkey_path, "master.pub"):
            return verify(pubkey_path, message, signature, *args, **kwargs)
        return asked("verify", algorithm(args, 0, kwargs), [_bytes(message), signature], {})

    salt.crypt.sign_message, salt.crypt.verify_signature = sign_message, verify_signature


def pillars_unkept():
    """Have Salt compile every pillar that it is asked for: its cache would write decrypted values below cachedir."""
    import salt.pillar

    def unkept(*args, clean_cache=False, **kwargs):
        return salt.pillar.Pillar(*args, **kwargs)

    salt.pillar.PillarCache = unkept


def _bytes(text):
    return text.encode() if isinstance(text, str) else text


def _jids(loads):
    import salt.utils.jid

    return {jid: salt.utils.jid.format_jid_instance(jid, load) for jid, load in loads.items()}


AFTER = {"local_cache.get_jids": _jids}  # what Salt makes of an answer of the master


class JobEvents:
    """What runner functions find as __jid_event__: events below the call's own tag."""

    def __init__(self, child):
        self.child = child

    def fire_event(self, data, tag):
        self.child.channel.send({"op": "show", "kind": "event", "value": {"suffix": tag, "data": data}})
        return True

    def destroy(self):
        pass


class Bound:
    """The loaders of one minion, or of the master itself. Nothing in them is shared with those of another."""

    count = 0

    def __init__(self, salt, minion, child):
        import salt.loader as loader

        self.salt, self.child, self.minion, self.loader = salt, child, minion, loader
        self.base = f"{BASE_NAME}{Bound.count or ''}"  # two loaders of one name would share modules
        Bound.count += 1
        if minion.get("states"):
            MASKED[:] = [True]
        self.pillar = minion.get("pillar") or {}
        self.opts = self.options(minion)
        self.opts["pillar"] = self.pillar
        self.context = {}
        self.load()

    def load(self):
        """Make the loaders of execution modules; all others are made on demand."""
        loader, files = self.loader, {}
        if self.minion.get("states") and takes(loader.minion_mods, "file_client"):
            import salt.fileclient

            if "fileclient" not in self.context:
                self.context["fileclient"] = salt.fileclient.get_file_client(self.opts)
            kept = getattr(salt.fileclient, "ContextlessFileClient", lambda client: client)
            files["file_client"] = kept(self.context["fileclient"])
        self.utils = loader.utils(self.opts, context=self.context, loaded_base_name=self.base)
        kept = {"pillar": self.pillar} if takes(loader.minion_mods, "pillar") else {}
        self.functions = loader.minion_mods(
            self.opts, context=self.context, utils=self.utils, loaded_base_name=self.base, **kept, **files
        )
        self._states, self.begun, self.files = None, set(), files
        self._pillars = self._renderers = self._runners = self._wheels = self._tops = self._auth = None
        self._returners = self._engines = None
        if self.child:
            self.child.stubs(self.functions, "module")

    def options(self, minion):
        """The master's options with what is the minion's."""
        if minion.get("states"):
            opts = self.salt.masters_minion()
            self.place(opts)
        else:
            opts = self.salt.own_opts()
        opts.update(minion.get("opts") or {})
        opts["grains"] = minion.get("grains") or {}
        if self.salt.minions_own and minion["id"]:
            opts["id"] = opts["minion_id"] = minion["id"]
            self.place(opts)
        return opts

    def place(self, opts):
        """Where the pillar comes from, in options."""
        for name in ("saltenv", "pillarenv"):
            if self.minion.get(name):
                opts[name] = self.minion[name]
        if self.minion.get("pillar_roots"):
            opts["pillar_roots"] = self.minion["pillar_roots"]

    @property
    def ext_pillars(self):
        if self._pillars is None:
            # Salt gives ext_pillars options of their own.
            opts = self.options(copied({k: v for k, v in self.minion.items() if k != "pillar"}))
            opts["pillar"] = copied(self.pillar)
            opts["id"] = self.salt.opts["id"]
            self.place(opts)
            kept = {"pillar": self.pillar} if takes(self.loader.pillars, "pillar") else {}
            self._pillars = self.loader.pillars(
                opts, self.functions, context=self.context, loaded_base_name=self.base, **kept
            )
        return self._pillars

    @property
    def renderers(self):
        if self._renderers is None:
            opts = dict(self.opts)
            opts["id"] = self.minion["id"]
            kept = {"pillar": self.pillar} if takes(self.loader.render, "pillar") else {}
            if self.minion.get("pillar_roots"):
                import salt.fileclient

                opts["minion_id"] = self.minion["id"]
                self.place(opts)
                client = salt.fileclient.get_file_client(opts, True)
                if takes(self.loader.render, "file_client"):
                    kept["file_client"] = client
            self._renderers = self.loader.render(opts, self.functions, loaded_base_name=self.base, **kept)
        return self._renderers

    @property
    def runners(self):
        if self._runners is None:
            self._runners = self.loader.runner(
                self.opts, utils=self.utils, context=self.context, loaded_base_name=self.base
            )
            if self.child:
                self.child.stubs(self._runners, "runner")
        return self._runners

    @property
    def wheels(self):
        if self._wheels is None:
            self._wheels = self.loader.wheels(self.opts, context=self.context, loaded_base_name=self.base)
        return self._wheels

    @property
    def tops(self):
        if self._tops is None:
            self._tops = self.loader.tops(self.opts, loaded_base_name=self.base)
        return self._tops

    @property
    def auth(self):
        if self._auth is None:
            self._auth = self.loader.auth(self.opts, loaded_base_name=self.base)
        return self._auth

    @property
    def returners(self):
        if self._returners is None:
            kept = {"context": self.context} if takes(self.loader.returners, "context") else {}
            if takes(self.loader.returners, "loaded_base_name"):
                kept["loaded_base_name"] = self.base
            self._returners = self.loader.returners(self.opts, self.functions, **kept)
        return self._returners

    @property
    def engines(self):
        if self._engines is None:
            kept = {"loaded_base_name": self.base} if takes(self.loader.engines, "loaded_base_name") else {}
            self._engines = self.loader.engines(self.opts, self.functions, self.runners, self.utils, **kept)
        return self._engines

    @property
    def states(self):
        if self._states is None:
            kept = {name: v for name, v in self.files.items() if takes(self.loader.states, name)}
            self._states = self.loader.states(
                self.opts, self.functions, self.utils, self.loader.serializers(self.opts), context=self.context,
                loaded_base_name=self.base, **kept
            )
            self.send_events()
        return self._states

    def send_events(self):
        """Have functions of the module event fire on the cluster's bus; Salt's own want the bus of a minion."""

        def fire(data, tag, preload=None):
            self.child.ask("event", str(tag), [], {"data": data})
            return True

        for one in (self.functions, vars(self.functions).get("_dunder_salt"), self.functions.pack.get("__salt__")):
            if not isinstance(one, self.salt.lazy):
                continue
            try:
                _, file = self._of(one, "event.send")
            except Problem:
                continue
            if is_salts(file):
                kept = vars(one)["_dict"]
                own = inspect.unwrap(kept["event.send"]).__globals__
                for name in ("fire", "fire_master"):
                    own[name] = kept[f"event.{name}"] = fire

    def reload(self, grains, pillar):
        """Load all modules again, as Salt does after a state that may have changed some."""
        self.opts["grains"], self.pillar = grains or {}, pillar or {}
        self.opts["pillar"] = self.pillar
        self.base = f"{BASE_NAME}{Bound.count}"
        Bound.count += 1
        begun = self.begun
        self.load()
        self.begun = begun

    def run_state(self, name, function, kwargs, message):
        """As salt.state.State calls a state function."""
        import salt.utils.files
        from salt.utils.immutabletypes import freeze

        low = message.get("low") or {}
        given = {
            "__low__": freeze(low), "__running__": freeze(message.get("running") or {}),
            "__lowstate__": freeze(message.get("lowstate") or []) or {}, "__instance_id__": message.get("instance") or "0",
            "__user__": message.get("user") or "UNKNOWN", "__env__": message.get("env") or "base",
        }
        if message.get("jid"):
            given["__orchestration_jid__"] = message["jid"]
        module = name.partition(".")[0]
        begin = f"{module}.mod_init"
        if module not in self.begun and begin in vars(self.states)["_dict"] and self.states[begin](low):
            self.begun.add(module)
        self.context["runas"] = low.get("runas")
        password = "password" if module == "cmd" and "password" in low else "runas_password"
        self.context["runas_password"] = low.get(password)
        before = self.states.opts.get("test")
        self.states.opts["test"] = message["test"]
        self.states.inject_globals = given
        try:
            with salt.utils.files.set_umask(message["umask"] if message["umask"] >= 0 else None):
                return function(**kwargs)
        finally:
            self.states.inject_globals = {}
            self.states.opts["test"] = before
            for key in ("runas", "runas_password"):
                self.context.pop(key, None)

    def machine(self):
        """The grains that Salt finds on this machine."""
        return self.loader.grains(self.salt.masters_minion())

    def find(self, kind, name):
        """A function and the file that it comes from. A name that none has is a Problem."""
        if kind == "module":
            return self._of(self.functions, name)
        if kind == "pillar":
            lazy = self.ext_pillars._dict if hasattr(self.ext_pillars, "_dict") else self.ext_pillars
            return self._of(lazy, name + ".ext_pillar", name)
        if kind == "render":
            return self._of(self.renderers._dict, name + ".render", name)
        if kind == "runner":
            return self._of(self.runners, name)
        if kind == "wheel":
            return self._of(self.wheels, name)
        if kind == "top":
            return self._of(getattr(self.tops, "_dict", self.auth), name + ".top", name)
        if kind == "auth":
            return self._of(self.auth, name + ".auth", name)
        if kind == "returner":
            return self._of(self.returners, name)
        if kind == "engine":
            return self._of(self.engines, name)
        if kind == "state":
            return self._of(self.states, name)
        raise Problem("refused", f"the host has no functions of kind {kind}")

    def _of(self, lazy, full, shown=None):
        shown = shown or full
        module = full.rpartition(".")[0]
        if not module or full.startswith("_"):
            raise Problem("unknown", f"'{shown}' is not available.")
        kept = vars(lazy)["_dict"]
        if full not in kept:
            if not list(lazy._iter_files(module)):
                raise Problem("unknown", f"'{shown}' is not available.")
            try:
                lazy[full]
            except KeyError:
                pass
        if full not in kept:
            raise Problem("unknown", self._why(lazy, full))
        function = lazy[full]
        plain = inspect.unwrap(kept[full])
        code = getattr(plain, "__code__", None)
        return function, code.co_filename if code else ""

    def _why(self, lazy, full):
        """Why a module is not there, in Salt's words, with its file."""
        text = lazy.missing_fun_string(full)
        module = full.rpartition(".")[0]
        for name in lazy._iter_files(module):
            reason = lazy.missing_modules.get(name)
            if isinstance(reason, BaseException):
                return f"{text}; {lazy.file_mapping[name][0]}: {type(reason).__name__}: {reason}"
        return text

    def call(self, kind, name, message):
        function, file = self.find(kind, name)
        args, kwargs = message.get("args") or [], message.get("kwargs") or {}
        self.child.running(name, file)
        if kind == "pillar":
            return self._ext_pillar(function, message)
        if kind == "render":
            return self._render(function, args[0], kwargs)
        if kind in ("runner", "wheel"):
            return self._job(function, args, kwargs)
        if kind == "auth":
            return self._authenticate(name, function, kwargs)
        if kind == "state":
            return self.run_state(name, function, kwargs, message)
        value = function(*args, **kwargs)
        if message.get("retcode"):
            code = self.context.get("retcode", 0)
            return {"return": value, "retcode": code if type(code) is int else int(code != 0)}
        return value

    def rostered(self, tgt, tgt_type):
        """The ids of the roster's targets that a target matches."""
        import salt.roster

        return sorted(salt.roster.Roster(self.opts, self.opts.get("roster", "flat")).targets(tgt, tgt_type))

    def hand_over(self, name, items, within):
        """Give a returner what waits for it, and begin nothing after so many seconds. Returns how many items it took, and
        why it refused the next."""
        done, end = 0, time.monotonic() + within
        for count, calls in steps(items):
            if done and time.monotonic() >= end:
                break
            for fun, args, kwargs in calls:
                try:
                    function, file = self.find("returner", f"{name}.{fun}")
                except Problem as exc:
                    if fun in OPTIONAL:
                        continue
                    return {"done": done, "error": str(exc)}
                self.child.running(f"{name}.{fun}", file)
                error = self._took(function, args, kwargs)
                if error is not None:
                    return {"done": done, "error": error}
            done += count
        return {"done": done, "error": None}

    def _took(self, function, args, kwargs):
        """Why a returner did not take something; None if it did.

        Many of Salt's returners catch the error of a database that is down and log it: a critical record of their file,
        or one with an exception, is such an error."""
        records = self.child.records
        records.held = held = []
        try:
            function(*args, **kwargs)
        except (MemoryError, SystemExit):
            raise
        except BaseException as exc:
            return f"{type(exc).__name__}: {_text(exc)}"
        finally:
            records.held = None
        for record in held:
            if "returners" in record.pathname and (record.levelno >= logging.CRITICAL or record.exc_info):
                text = record.getMessage()
                if record.exc_info and record.exc_info[1] is not None:
                    text += f": {type(record.exc_info[1]).__name__}: {_text(record.exc_info[1])}"
                return text[:MAX_LOG_TEXT]
        for record in held:
            records.emit(record)
        return None

    def _authenticate(self, name, function, load):
        """As salt.auth.LoadAuth asks a module: whether a password is good, and what the module knows of the user; or,
        with a list, what the user may order after all."""
        import salt.auth
        from salt.exceptions import SaltInvocationError
        from salt.utils.args import format_call

        def ask(part):
            full = f"{name}.{part}"
            if full not in self.auth:
                return None
            got = format_call(self.auth[full], dict(load), expected_extra_kws=salt.auth.AUTH_INTERNAL_KEYWORDS)
            return self.auth[full](*got["args"], **got.get("kwargs", {}))

        if "auth_list" in load:
            if f"{name}.process_acl" not in self.auth:
                return load["auth_list"]
            return self.auth[f"{name}.process_acl"](load["auth_list"], self.opts)
        try:
            good = bool(ask("auth"))
        except SaltInvocationError:  # it wants other credentials
            good = False
        if not good:
            return {"good": False}
        return {"good": True, "groups": list(ask("groups") or ()), "acl": ask("acl")}

    def prepare(self, kind, message):
        """What each module of a call of salt-run finds about it as a global."""
        lazy = self.runners if kind == "runner" else self.wheels
        given = {
            "__jid__": message.get("jid"), "__user__": message.get("user"), "__tag__": message.get("tag"),
            "__jid_event__": JobEvents(self.child),
        }
        load = lazy._load_module

        def marked(name):
            done = load(name)
            for function in vars(lazy)["_dict"].values():
                own = getattr(inspect.unwrap(function), "__globals__", globals())
                if own is not globals() and own.get("__jid_event__") is not given["__jid_event__"]:
                    own.update(given)
            return done

        lazy._load_module = marked

    def _job(self, function, args, kwargs):
        """As salt.client.mixins calls a runner function. Returns what it returned, its success and the exit code of salt-run."""
        import salt.utils.state

        try:
            value = function(*args, **kwargs)
        except TypeError as exc:
            text = f"\nPassed invalid arguments: {exc}\n\nUsage:\n{function.__doc__}"
            return {"return": text, "success": self.context.get("retcode", 0) == 0, "retcode": 0}
        success, code = self.context.get("retcode", 0) == 0, 0
        if isinstance(value, dict):
            if "data" in value:
                success = salt.utils.state.check_result(value["data"])
            if "retcode" in value:
                code = value["retcode"]
            elif isinstance(value.get("data"), dict):
                code = value["data"].get("retcode", 0)
        return {"return": value, "success": success, "retcode": code if isinstance(code, int) else 0}

    def describe(self, kind, name):
        """How functions are called and what they say of themselves: of one, or with "" of all."""
        import salt.utils.doc

        names = [name] if name else sorted(getattr(self, kind + "s"))
        out = {}
        for full in names:
            try:
                function, file = self.find(kind, full)
            except Problem:
                if name:
                    raise
                continue
            doc = salt.utils.doc.strip_rst({full: function.__doc__})[full]
            out[full] = {"doc": str(doc), "usage": str(function.__doc__), "file": file, **signature(function)}
            if kind == "state":
                text = text_of(file)
                out[full].update(running="__running__" in text, lowstate="__lowstate__" in text)
        return out

    def _render(self, function, data, place):
        """As salt.template.compile_template calls a renderer."""
        import io

        import salt.utils.stringio

        if isinstance(data, str):
            data = io.StringIO(data)
        sls = place.get("sls") or ""
        more = {"renderers": self.renderers, "tmplpath": place.get("path") or "", **(place.get("keywords") or {})}
        if place.get("argline"):
            more["argline"] = place["argline"]
        out = function(data, place.get("saltenv") or "base", sls, **more)
        return out.read() if salt.utils.stringio.is_readable(out) else out

    def _ext_pillar(self, function, message):
        """As salt.pillar.Pillar calls an ext_pillar: its arguments by their form."""
        import salt.utils.args

        if takes(self.loader.pillars, "pillar"):
            self.pillar.update(message.get("before") or {})  # the loaders share this object
        given, extra = message.get("given"), message.get("extra")
        more = {}
        if extra and "extra_minion_data" in salt.utils.args.get_function_argspec(function).args:
            more["extra_minion_data"] = extra
        head = (self.minion["id"], message.get("pillar") or {})
        if isinstance(given, dict):
            return function(*head, **more, **given)
        if isinstance(given, list):
            return function(*head, *given, **more)
        return function(*head, given, **more)


OPTIONAL = ("save_minions", "update_endtime")  # functions that a returner may lack


def steps(items):
    """The calls that items mean, in order, with the number of items that they end: events are one call."""
    events = []
    for item in items:
        kind = item["kind"]
        if kind == "event":
            events.append({"tag": item["tag"], "data": item["data"]})
            continue
        if events:
            yield len(events), [("event_return", [events], {})]
            events = []
        yield 1, list(calls_for(kind, item))
    if events:
        yield len(events), [("event_return", [events], {})]


def calls_for(kind, item):
    """The calls for one item of a job, as Salt's master makes them."""
    load = item.get("load")
    if kind == "load":
        yield "save_load", [item["jid"], load], {"minions": item["minions"]}
    elif kind == "minions":
        yield "save_minions", [item["jid"], item["minions"]], {"syndic_id": item["syndic"]}
    elif kind == "return":
        yield "save_load", [item["jid"], load], {}
        yield "returner", [load], {}
        if item["end"]:
            yield "update_endtime", [item["jid"], item["end"]], {}
    elif kind == "result":
        yield "returner", [load], {}
    else:
        raise Problem("refused", f"the host knows no items of kind {kind}")


def signature(function):
    """Parameters as Salt's argument checks see them; values that can't travel are their text."""
    import salt.utils.args

    try:
        spec = salt.utils.args.get_function_argspec(function)
    except TypeError:
        return {"params": [], "varargs": True, "varkw": True}
    needed = len(spec.args) - len(spec.defaults or ())
    params = []
    for i, name in enumerate(spec.args):
        param = {"name": name, "required": i < needed}
        if i >= needed:
            try:
                unpack(pack(spec.defaults[i - needed]))
                param["default"] = spec.defaults[i - needed]
            except Exception:
                param["default"] = str(spec.defaults[i - needed])
        params.append(param)
    return {"params": params, "varargs": bool(spec.varargs), "varkw": bool(spec.keywords)}


class Surroundings:
    """What code can change for all of its process, except by what it imports."""

    def __init__(self):
        self.environ, self.path = dict(os.environ), list(sys.path)
        self.umask = os.umask(0o022)
        os.umask(self.umask)
        self.space, self.resident = self.used()

    def used(self):
        """Bytes of address space, and in memory."""
        with open("/proc/self/statm", "rb") as file:
            return [int(pages) * resource.getpagesize() for pages in file.read().split()[:2]]

    def restore(self):
        os.chdir("/")
        os.umask(self.umask)
        if os.environ != self.environ:
            os.environ.clear()
            os.environ.update(self.environ)
        sys.path[:] = self.path
        signal.setitimer(signal.ITIMER_REAL, 0)
        socket.setdefaulttimeout(None)

    def worn(self, memory):
        """Whether something is left that would touch the calls for another minion."""
        space, resident = self.used()
        # A library may reserve much of the space; it does so once.
        return threading.active_count() > 1 or resident - self.resident > memory // 8 or space - self.space > memory * 3 // 4


class Child:
    """One child: it answers calls until its socket ends. It serves one minion after the other."""

    def __init__(self, server, sock, order):
        self.salt, self.config = server.salt, server.config
        self.channel = Channel(sock, server.config["output"])
        self.bound = None
        self.asking = threading.RLock()
        self.records = Records(self.log, server.config["log_level"])
        self.surroundings = Surroundings()
        CHILD[:] = [self]

    def serve(self):
        self.listen()
        while True:
            self.handle(self.channel.receive())

    def listen(self):
        """Have log records and what is printed reach the master."""
        root = logging.getLogger()
        root.handlers[:] = [self.records]
        root.setLevel(self.config["log_level"])
        sys.stdout = sys.stderr = Printed(self.log)

    def forget(self):
        """Begin anew for the next minion. Libraries that modules imported stay, as in Salt's own processes."""
        self.bound = None
        forget_modules()
        self.surroundings.restore()
        self.listen()

    def log(self, level, module, text):
        if self.channel.own():
            self.channel.send({"op": "log", "level": level, "module": module, "text": text})
        else:  # a process that a module forked, such as one of salt-ssh
            os.write(1, f"{logging.getLevelName(level)}: {module}: {text}\n".encode("utf-8", "replace"))

    def running(self, name, file):
        self.channel.send({"op": "at", "fun": name, "file": file})

    def handle(self, message, nested=False):
        self.records.left = MAX_LOG_RECORDS
        try:
            if message.get("bind") is not None:
                if self.bound is not None:
                    self.forget()
                self.bound = Bound(self.salt, message["bind"], self)
            if message.get("reload") is not None:
                self.bound.reload(**message["reload"])
            answer = {"op": "ret", "value": self.run(message)}
        except Problem as exc:
            answer = {"op": "error", "kind": exc.kind, "text": str(exc)}
        except MemoryError:
            answer = {"op": "error", "kind": "memory", "text": ""}
        except SystemExit as exc:
            if message.get("kind") in ("runner", "wheel"):
                answer = failure(exc)
            else:
                answer = {"op": "error", "kind": "exit", "text": str(exc.code)}
        except BaseException as exc:
            answer = failure(exc)
        if not nested:
            self.leftovers()
        if self.surroundings.worn(self.config["memory"]):
            answer["worn"] = True
        try:
            self.channel.send(answer)
        except TooLarge as exc:
            self.channel.send({"op": "error", "kind": "output", "text": str(exc)})
        except MemoryError:
            self.channel.send({"op": "error", "kind": "memory", "text": ""})
        except Exception as exc:
            self.channel.send({"op": "error", "kind": "result", "text": f"{type(exc).__name__}: {exc}"})

    def run(self, message):
        kind, name = message["kind"], message["fun"]
        if kind == "has":
            return self.has(name)
        if kind == "describe":
            return self.bound.describe(message["args"][0], name)
        if kind in ("runner", "wheel"):
            return self.job(kind, name, message)
        if kind == "roster":
            return self.bound.rostered(*message["args"])
        if kind == "grains":
            return self.bound.machine()
        if kind == "hand over":
            return self.bound.hand_over(name, message["args"], message["kwargs"]["within"])
        if kind == "engine":
            self.records.endless = True
            self.bound.call(kind, name, message)
            return None
        return self.bound.call(kind, name, message)

    def job(self, kind, name, message):
        """A call of salt-run: what it prints goes to the operator."""
        logs = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = Terminal(self.channel.send, "print"), Terminal(self.channel.send, "warning")
        try:
            self.bound.prepare(kind, message)
            return self.bound.call(kind, name, message)
        finally:
            sys.stdout.end()
            sys.stderr.end()
            sys.stdout, sys.stderr = logs

    def has(self, name):
        """Whether a function is there; a name with a dot at its end asks for any of that module."""
        try:
            if name.endswith("."):
                module = name[:-1]
                lazy = self.bound.functions
                for file in lazy._iter_files(module):
                    if file not in lazy.loaded_files:
                        lazy._load_module(file)
                return module in lazy.loaded_modules
            self.bound.find("module", name)
            return True
        except Problem:
            return False

    def stubs(self, lazy, what):
        """Put functions that the master answers where Salt's own would read empty folders. A site's module keeps its own."""
        for name in self.config["natives"].get(what) or ():
            module = name.partition(".")[0]
            if module in lazy.file_mapping and not is_salts(lazy.file_mapping[module][0]):
                continue
            # The loader that modules see as __salt__ may be another one.
            others = () if what == "returner" else (vars(lazy).get("_dunder_salt"), lazy.pack.get("__salt__"))
            for one in (lazy, *others):
                if isinstance(one, self.salt.lazy):
                    vars(one)["_dict"][name] = self.stub(what, name)

    def stub(self, what, name):
        def call(*args, **kwargs):
            got = self.ask(what, name, args, {k: v for k, v in kwargs.items() if not k.startswith("__")})
            return AFTER[name](got) if name in AFTER else got

        call.__name__ = name.partition(".")[2]
        return call

    def ask(self, what, name, args, kwargs):
        """Have the master do something, and serve what it asks meanwhile."""
        if not self.channel.own():
            raise RuntimeError(f"{name} can't be called from a process that a module forked")
        with self.asking:  # threads of a module ask one after the other
            self.channel.send({"op": "cb", "what": what, "fun": name, "args": list(args), "kwargs": kwargs})
            while True:
                message = self.channel.receive()
                if message["op"] != "cbret":
                    self.handle(message, nested=True)
                    continue
                if message.get("error") is not None:
                    from salt.exceptions import CommandExecutionError

                    raise CommandExecutionError(message["error"])
                return message.get("value")

    def leftovers(self):
        """End the processes that a call started and left. Those that they leave become the child's own."""
        for _ in range(GENERATIONS):
            if not (pids := self.offspring()):
                return
            self.finish(pids)

    def offspring(self):
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                return [int(p) for p in file.read().split()]
        except (OSError, ValueError):
            return []

    def finish(self, pids):
        for pid in pids:
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    continue
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self.log(logging.WARNING, "clustermaster", f"process {pid} was left running by the call and was ended")
            except OSError:
                pass


def failure(exc):
    """An error of a function, with its class and with the frames that are not the host's."""
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename != "<host.py>"]
    trace = "".join(traceback.format_list(frames[-12:]))
    shown = "Traceback (most recent call last):\n" + trace + "".join(traceback.format_exception_only(type(exc), exc))
    return {
        "op": "error", "kind": "failed", "class": type(exc).__name__, "text": _text(exc), "trace": trace[:MAX_LOG_TEXT],
        "shown": shown[:MAX_LOG_TEXT],
        "mro": [c.__name__ for c in type(exc).__mro__],
    }


def _text(exc):
    try:
        return str(exc)
    except Exception:
        return repr(type(exc))


class Server:
    """The fork server: it starts children and tells when they end. It has one thread and no connections."""

    def __init__(self, config):
        self.config = config
        self.control = socket.socket(fileno=3)
        self.pids = set()
        self.leases = {}  # process id to when it is ended unless its lease is made longer
        self.salt = None

    def tell(self, message):
        try:
            self.control.send(pack(message))
        except OSError:
            os._exit(0)

    def log(self, level, module, text):
        self.tell({"op": "log", "level": level, "module": module, "text": text})

    def run(self):
        die_with_parent()
        logging.getLogger().handlers[:] = [Records(self.log, self.config["log_level"])]
        try:
            self.salt = Salt(self.config)
        except Problem as exc:
            self.tell({"op": "refused", "text": str(exc)})
            return
        except BaseException as exc:
            self.tell({"op": "refused", "text": f"{type(exc).__name__}: {exc}"})
            return
        gc.collect()
        gc.freeze()
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        self.tell({"op": "ready", "python": sys.version.split()[0], "salt": self.salt.version, "pid": os.getpid()})
        while True:
            for fd, _ in poll.poll(self.patience()):
                if fd == wake:
                    os.read(wake, 512)
                    self.reap()
                    continue
                self.order(wake, waker)
            self.expire()

    def patience(self):
        """Milliseconds until a lease ends; None where there is none."""
        if not self.leases:
            return None
        return max(0, int((min(self.leases.values()) - time.monotonic()) * 1000) + 1)

    def expire(self):
        """End the children whose lease is over: the master that should make it longer has stopped."""
        for pid, end in list(self.leases.items()):
            if time.monotonic() < end:
                continue
            del self.leases[pid]
            for kill, what in ((os.killpg, pid), (os.kill, pid)):
                try:
                    kill(what, signal.SIGKILL)
                except OSError:
                    pass

    def order(self, wake, waker):
        data, fds, _, _ = socket.recv_fds(self.control, 1 << 16, 1)
        if not data:
            os._exit(0)
        order = unpack(data)
        if order["op"] == "lease":
            if order["pid"] in self.pids:
                self.leases[order["pid"]] = time.monotonic() + order["ms"] / 1000
            return
        sock = socket.socket(fileno=fds[0])
        try:
            self.salt.refresh()
        except Exception as exc:
            self.log(logging.ERROR, "clustermaster", f"folders of modules can't be looked through: {exc}")
        try:
            pid = os.fork()
        except OSError as exc:
            self.tell({"op": "failed", "n": order["n"], "text": str(exc)})
            sock.close()
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for fd in (wake, waker):
                    os.close(fd)
                self.control.close()
                self.confine()
                Child(self, sock, order).serve()
            finally:
                os._exit(1)
        sock.close()
        self.pids.add(pid)
        self.tell({"op": "forked", "n": order["n"], "pid": pid})

    def confine(self):
        """Limits of a child. It leads a session of its own, by which what it starts is found."""
        os.setsid()
        die_with_parent()
        PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        memory = self.config["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    def reap(self):
        while self.pids:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.pids.discard(pid)
            self.leases.pop(pid, None)
            self.tell({"op": "ended", "pid": pid, "status": os.waitstatus_to_exitcode(status)})


def main():
    source = sys.stdin.buffer
    (size,) = LENGTH.unpack(source.read(LENGTH.size))
    config = unpack(source.read(size))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))  # what the master itself inherited
    Server(config).run()


main()
