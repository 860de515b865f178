"""The errors of a render, under Salt's names."""


class SaltException(Exception):
    pass


class TemplateError(SaltException):
    pass


class CommandExecutionError(SaltException):
    pass


class SaltInvocationError(SaltException, TypeError):
    pass


# A traceback in a message names the class as Salt's own does.
for _cls in (SaltException, TemplateError, CommandExecutionError, SaltInvocationError):
    _cls.__module__ = "salt.exceptions"


def raised(name, text):
    """An exception of a function that ran in another process."""
    return type(name, (Exception,), {"__module__": "builtins"})(text)


class RenderError(Exception):
    """A render failed; the text is what an operator reads."""

    def __init__(self, text, line=0, source="", trace=""):
        if trace:
            text += f"\n{trace}\n"
        if line and source:
            text += f"; line {line}\n\n{excerpt(source, line)}"
        super().__init__(text)
        self.line = line or 0


MARKER = "    <======================"


def excerpt(source, line, around=5):
    """The lines around a line, which is marked."""
    lines = source.splitlines()
    if line > len(lines):
        return source
    first = max(0, line - around - 1)
    last = min(len(lines), line + around)
    shown = lines[first:last]
    shown[line - first - 1] += MARKER
    if first > 0:
        shown.insert(0, "[...]")
    if last < len(lines):
        shown.append("[...]")
    return "---\n" + "\n".join(shown) + "\n---"
