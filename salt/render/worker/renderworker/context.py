"""What a template sees: grains, pillar, opts, salt and the names of its place."""

import jinja2.runtime

from renderworker import errors
from renderworker.channel import unpack

PARTS = ("grains", "pillar", "opts")


class Parts:
    """Packed parts of contexts by their hashes. The master decides which to keep."""

    def __init__(self):
        self._packed = {}

    def store(self, put, drop):
        for key in drop:
            self._packed.pop(key, None)
        self._packed.update(put)

    def lazy(self, key):
        return Lazy(self._packed[key])


class Lazy:
    """A part that one render unpacks on first use."""

    __slots__ = ("_packed", "_value", "_there")

    def __init__(self, packed):
        self._packed, self._value, self._there = packed, None, False

    def get(self):
        if not self._there:
            self._value, self._there = unpack(self._packed), True
        return self._value


class LazyContext(jinja2.runtime.Context):
    """Unpacks grains, pillar and opts when a template names them."""

    def resolve_or_missing(self, key):
        value = super().resolve_or_missing(key)
        return value.get() if type(value) is Lazy else value

    def plain(self):
        return {k: v.get() if type(v) is Lazy else v for k, v in self.get_all().items()}


class Functions:
    """The name salt of templates: functions that run on the master."""

    def __init__(self, channel):
        self._channel = channel
        self._known = set()
        self._why = ""  # why functions are missing

    def has(self, name):
        if name in self._known:
            return True
        if not isinstance(name, str):
            return False
        answer = self._channel.ask({"op": "has", "fun": name})
        if answer["value"]:
            self._known.add(name)
        else:
            self._why = answer["why"]
        return answer["value"]

    def lacks(self, text):
        """A text about a missing function, with the reason."""
        return f"{text}; {self._why}" if self._why else text

    def call(self, name, args, kwargs):
        answer = self._channel.ask({"op": "call", "fun": name, "args": list(args), "kwargs": kwargs})
        kind = answer.get("error")
        if not kind:
            return answer["value"]
        if kind == "unknown":
            raise UnknownFunction(name)
        if answer.get("class"):
            raise errors.raised(answer["class"], answer["text"])
        raise errors.CommandExecutionError(answer["text"])


class UnknownFunction(jinja2.UndefinedError):
    def __init__(self, name):
        super().__init__(f"'salt.utils.templates.AliasedLoader object' has no attribute '{name}'")


class AliasedLoader:
    """salt['mod.fun'](...) and salt.mod.fun(...)."""

    __slots__ = ("_functions",)
    __module__ = "salt.utils.templates"

    def __init__(self, functions):
        self._functions = functions

    def __getitem__(self, name):
        if not self._functions.has(name):
            raise KeyError(self._functions.lacks(name))
        return _function(self._functions, name)

    def __contains__(self, name):
        return self._functions.has(name)

    def get(self, name, default=None):
        return self[name] if name in self else default

    def __getattr__(self, name):
        if name.startswith("_") or not self._functions.has(name + "."):
            raise AttributeError(name)
        return LoadedMod(self._functions, name)


class LoadedMod:
    __slots__ = ("_functions", "_name")
    __module__ = "salt.loader.lazy"

    def __init__(self, functions, name):
        self._functions, self._name = functions, name

    def __getattr__(self, name):
        full = f"{self._name}.{name}"
        if name.startswith("_") or not self._functions.has(full):
            raise AttributeError(name)
        return _function(self._functions, full)


# How Jinja's text about a missing function begins.
LACKS = tuple(f"'{c.__module__}.{c.__name__} object' has no attribute " for c in (AliasedLoader, LoadedMod))

# Functions that change their first argument: the master changes a copy.
IN_PLACE = ("defaults.merge", "defaults.update", "slsutil.update")


def _function(functions, name):
    def call(*args, **kwargs):
        value = functions.call(name, args, kwargs)
        if name in IN_PLACE and (args[3] if len(args) > 3 else kwargs.get("in_place", True)):
            dest = args[0] if args else kwargs.get("dest")
            if isinstance(dest, dict):
                dest.clear()
                dest.update(value)
                return dest
        return value

    call.__name__ = name
    return call
