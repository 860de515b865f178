"""The py renderer: a module whose run() returns the data."""

import traceback
import types

from renderworker.context import PARTS, AliasedLoader, Functions
from renderworker.errors import RenderError


def render(source, request, parts, channel):
    path = request["path"]
    module = types.ModuleType(path.rsplit("/", 1)[-1].split(".")[0])
    names = {"salt": AliasedLoader(Functions(channel))}
    for part in PARTS:
        names[part] = parts.lazy(request[part]).get()
    dunder = {f"__{k}__": v for k, v in names.items()}
    dunder.update(__env__=request["saltenv"], __sls__=request["sls"], __file__=path)
    names.update(saltenv=request["saltenv"], sls=request["sls"], tmplpath=path)
    names.update(parts.lazy(request["vars"]).get())
    module.__dict__.update(names)
    module.__dict__.update(dunder)
    try:
        exec(compile(source, path, "exec"), module.__dict__)
        return module.run()
    except MemoryError:
        raise
    except (Exception, SystemExit) as exc:
        raise RenderError(trace(exc, path)) from None


def trace(exc, path):
    """The traceback without the worker's own frames."""
    whole = traceback.TracebackException.from_exception(exc)
    whole.stack = traceback.StackSummary.from_list([f for f in whole.stack if f.filename == path])
    whole.__context__ = None
    return "".join(whole.format())
