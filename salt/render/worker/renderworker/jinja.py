"""The jinja renderer: Jinja2's sandbox with Salt's filters, tests, globals and tags."""

import json
import sys
import traceback
from collections import OrderedDict

import jinja2
import jinja2.defaults
import jinja2.environment
import jinja2.ext
import jinja2.sandbox
from jinja2.loaders import BaseLoader

from renderworker import analysis, errors, filters, tags
from renderworker.context import LACKS, PARTS, AliasedLoader, Functions, LazyContext
from renderworker.errors import RenderError, excerpt

HEADER = "#jinja2:"
MAX_TEMPLATES = 2000
MAX_SOURCE = 16 << 20  # characters of the compiled templates that are kept


class State:
    """The facts about one render that its master needs."""

    def __init__(self, channel, saltenv):
        self.functions = Functions(channel)
        self.channel = channel
        self.saltenv = saltenv
        self.sources = {}  # file name to text of imported files
        self.reads = analysis.Reads()
        self.impure = False


class Environment(jinja2.sandbox.SandboxedEnvironment):
    context_class = LazyContext
    state = None

    def for_render(self, state, loader):
        """A copy with its own globals and loaded templates, because templates change both."""
        env = object.__new__(type(self))
        env.__dict__.update(self.__dict__)
        env.globals = self.globals.copy()
        env.cache = jinja2.environment.create_cache(400)
        env.loader = loader
        env.state = state
        return env


class Renderer:
    def __init__(self, channel):
        self._channel = channel
        self._bases = {}
        self._options = {}
        self._compiled = Compiled()

    def render(self, source, request, parts):
        state = State(self._channel, request["saltenv"])
        keeps_end = source.endswith("\n")
        options = dict(self._common_options(request["opts"], request["sls"], parts))
        source = _file_options(source, options)
        base = self._base(options)
        env = base.for_render(state, HostLoader(self._compiled, base))
        names = {part: parts.lazy(request[part]) for part in PARTS}
        names.update(salt=AliasedLoader(state.functions), saltenv=request["saltenv"], sls=request["sls"])
        names.update(parts.lazy(request["vars"]).get())
        env.globals.update(names)
        try:
            template = self._compiled.template(env, base, source, None, None, None, state)
            out = template.render(names)
        except MemoryError:
            raise
        except Exception as exc:
            raise _explain(exc, source, request["sls"], state) from None
        if keeps_end:
            out += "\n"
        return out, {"keys": state.reads.export(), "impure": state.impure}

    def _common_options(self, opts_key, sls, parts):
        key = (opts_key, bool(sls))
        found = self._options.get(key)
        if found is None:
            if len(self._options) > 100:
                self._options.clear()
            found = self._options[key] = _options(parts.lazy(opts_key).get(), bool(sls))
        return found

    def _base(self, options):
        try:
            key = json.dumps(options, sort_keys=True)
        except (TypeError, ValueError):
            key = repr(options)
        base = self._bases.get(key)
        if base is None:
            if len(self._bases) > 16:
                self._bases.clear()
            options = dict(options)
            undefined = jinja2.Undefined if options.pop("allow_undefined", False) else jinja2.StrictUndefined
            options.setdefault("undefined", undefined)
            extensions = ["jinja2.ext.do", "jinja2.ext.loopcontrols", tags.SerializerExtension]
            base = Environment(extensions=extensions, **options)
            filters.install(base)
            base.globals["odict"] = OrderedDict
            base.key = key
            self._bases[key] = base
        return base


def _options(opts, is_sls):
    """The Jinja environment's options from the master's configuration."""
    chosen = {}
    named = opts.get("jinja_sls_env" if is_sls else "jinja_env")
    if isinstance(named, dict):
        chosen.update(named)
    for name in ("trim_blocks", "lstrip_blocks"):
        if opts.get("jinja_" + name):
            chosen[name] = True
    out = {k.lower(): v for k, v in chosen.items() if hasattr(jinja2.defaults, k.upper())}
    if opts.get("allow_undefined"):
        out["allow_undefined"] = True
    return out


def _file_options(source, options):
    """Take the options of a header line out of the template."""
    if HEADER not in source:
        return source
    lines = source.splitlines(keepends=True)
    at = 1 if lines[0].startswith("#!") and not lines[0].startswith("#!/") else 0
    if at >= len(lines) or not lines[at].startswith(HEADER):
        return source
    try:
        asked = json.loads(lines[at][len(HEADER) :])
    except ValueError:
        return source
    if not isinstance(asked, dict):
        return source
    options.update({k.lower(): v for k, v in asked.items() if hasattr(jinja2.defaults, k.upper())})
    del lines[at]
    return "".join(lines)


class Compiled:
    """Compiled templates, the oldest dropped first."""

    def __init__(self):
        self._kept = OrderedDict()
        self._size = 0

    def template(self, env, base, source, name, filename, globals_, state):
        key = (base.key, name, filename, source)
        found = self._kept.get(key)
        if found is None:
            code = env.compile(source, name, filename)
            found = self._kept[key] = (code, analysis.reads(env.parse(source, name, filename)))
            self._size += len(source)
            while len(self._kept) > MAX_TEMPLATES or self._size > MAX_SOURCE and len(self._kept) > 1:
                old, _ = self._kept.popitem(last=False)
                self._size -= len(old[3])
        code, reads = found
        state.reads.add(reads)
        return env.template_class.from_code(env, code, env.make_globals(globals_), _always_fresh)


def _always_fresh():
    return True


class HostLoader(BaseLoader):
    """Asks the master for templates. The master knows the roots and what may be read."""

    def __init__(self, compiled, base):
        self._compiled, self._base = compiled, base

    def load(self, environment, name, globals=None):
        source, filename = self._fetch(environment, name)
        state = environment.state
        return self._compiled.template(environment, self._base, source, name, filename, globals, state)

    def get_source(self, environment, template):
        source, filename = self._fetch(environment, template)
        return source, filename, _always_fresh

    def _fetch(self, environment, template):
        path = template
        names = environment.globals
        relative = template.split("/", 1)[0] in (".", "..")
        if relative:
            if "tpldir" not in names:
                raise jinja2.TemplateNotFound(template)
            path = _join(names["tpldir"], template)
            if path is None:
                raise jinja2.TemplateNotFound(template)
        answer = environment.state.channel.ask({"op": "file", "saltenv": environment.state.saltenv, "path": path})
        if answer.get("error"):
            raise errors.CommandExecutionError(answer["text"])
        folder = path.rpartition("/")[0]
        if relative:
            folder = names.get("tpldir", folder)
        names["tplfile"] = template if relative else path
        names["tpldir"] = folder or "."
        names["tpldot"] = folder.replace("/", ".")
        if not answer["found"]:
            raise jinja2.TemplateNotFound(template)
        data = answer["data"]
        source = data if isinstance(data, str) else data.decode("utf-8")
        filename = answer["name"]
        environment.state.sources[filename] = source
        return source, filename


def _join(folder, template):
    """Resolve a relative name against a folder; None above the root."""
    parts = []
    for part in f"{folder}/{template}".split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


_TEMPLATE_FRAMES = ("top-level template code", "template", "<module>")


def _explain(exc, source, sls, state):
    """The error in Salt's words, with its place in the template."""
    frames = [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(sys.exc_info()[2])]
    places = [f for f in frames if f[2] in _TEMPLATE_FRAMES]
    name, line, _ = places[-1] if places else ("", 0, "")
    where = ""
    if name in state.sources and not name.endswith(sls.replace(".", "/")):
        where = f"\n{name}({line}):\n{excerpt(state.sources[name], line)}"
        line = 0
    if not line:
        source = ""
    if isinstance(exc, jinja2.UndefinedError):
        text = str(exc)
        if text.startswith(LACKS):
            text = state.functions.lacks(text)
        return RenderError(f"Jinja variable {text}{where}", line, source)
    if isinstance(exc, (jinja2.TemplateRuntimeError, jinja2.TemplateSyntaxError)):
        return RenderError(f"Jinja syntax error: {exc}{where}", line, source)
    if isinstance(exc, (errors.SaltInvocationError, errors.CommandExecutionError)):
        return RenderError(f"Problem running salt function in Jinja template: {exc}{where}", line, source)
    trace = _trace(exc, frames, places)
    if line:
        source += "\n" + trace
    return RenderError(f"Jinja error: {exc}{where}", line, source, trace)


def _trace(exc, frames, places):
    """A traceback with the templates' frames only."""
    lines = ["Traceback (most recent call last):\n"]
    lines += [f'  File "{name}", line {line}, in {what}\n' for name, line, what in places]
    return "".join(lines + traceback.format_exception_only(type(exc), exc))
