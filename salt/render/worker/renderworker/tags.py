"""Salt's tags and the filters that turn data into text and back."""

import itertools
import json
import pprint
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import wraps
from xml.dom import minidom
from xml.etree.ElementTree import Element, SubElement, tostring

import jinja2
import yaml
from jinja2 import nodes
from jinja2.environment import TemplateModule
from jinja2.ext import Extension
from markupsafe import Markup

from renderworker import structured
from renderworker.errors import excerpt


class PrintableDict(OrderedDict):
    """A mapping whose printed form reads as YAML."""

    def __str__(self):
        return self._text(str)

    def __repr__(self):
        return self._text(repr)

    def _text(self, other):
        pairs = (f"{k!r}: {_quoted(v) if isinstance(v, str) else other(v)}" for k, v in self.items())
        return "{" + ", ".join(pairs) + "}"


def _quoted(text):
    """repr, or YAML's double quotes where repr's escapes would not read back."""
    if not any(c in text for c in "\n\r\t"):
        return repr(text)
    wide = 2**31 - 1
    out = structured.dump(text, default_style='"', default_flow_style=True, width=wide)
    return out.rstrip("\n").rstrip("...").rstrip("\n")


def printable(value):
    """The value that is printed instead: see PrintableDict."""
    if isinstance(value, dict):
        return PrintableDict((k, printable(v)) for k, v in value.items())
    if isinstance(value, (list, tuple, set)):
        return value.__class__([printable(v) for v in value])
    return value


def undefined_in(value, seen=None):
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, jinja2.StrictUndefined):
        return [value]
    found = []
    if isinstance(value, Mapping):
        for k, v in value.items():
            found += undefined_in(k, seen) + undefined_in(v, seen)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for v in value:
            found += undefined_in(v, seen)
    return found


def strict(function):
    """Return an undefined value inside the argument, with its message, as the result."""

    @wraps(function)
    def checked(value, *args, **kwargs):
        found = undefined_in(value)
        if found:
            return jinja2.StrictUndefined("\n".join(u._undefined_message for u in found))
        return function(value, *args, **kwargs)

    return checked


def decoded(value):
    """Turn bytes into text and mappings and tuples into dicts and lists, at every depth."""
    if isinstance(value, Mapping):
        return {decoded(k): decoded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [decoded(v) for v in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8")
    return value


@strict
def to_json(value, sort_keys=True, indent=None):
    return Markup(json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, indent=indent).strip())


@strict
def to_yaml(value, flow_style=True):
    out = structured.dump(value, default_flow_style=flow_style).strip()
    return Markup(out[:-4] if out.endswith("\n...") else out)


@strict
def sls_params(value, flow_style=False):
    return to_yaml([{k: v} for k, v in value.items()], flow_style=flow_style)


@strict
def to_python(value):
    return Markup(pprint.pformat(value).strip())


@strict
def to_xml(value):
    root = _element(_pairs(value), None)
    return Markup(minidom.parseString(tostring(root)).toprettyxml(indent=" "))


def _pairs(value):
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return value if isinstance(value[0], str) else []
    raise jinja2.TemplateRuntimeError("Value is not a dict or list. Cannot render as XML")


def _element(pairs, parent):
    element = None
    for tag, content in pairs:
        if isinstance(content, list):
            for item in content:
                _element(((tag, item),), parent)
        elif parent is not None:
            element = SubElement(parent, tag)
        else:
            element = Element(tag)
        if isinstance(content, (str, int, bool, float)):
            element.text = str(content)
            continue
        if isinstance(content, dict):
            element.attrib = {k: str(v) for k, v in content.items() if not isinstance(v, (dict, list))}
        for pair in _pairs(content):
            if isinstance(pair[1], (dict, list)):
                _element((pair,), element)
    return element


@strict
def load_yaml(value):
    if isinstance(value, TemplateModule):
        value = str(value)
    try:
        return decoded(structured.load(value))
    except yaml.YAMLError as exc:
        text = "Encountered error loading yaml: "
        mark = getattr(exc, "problem_mark", None)
        if mark is None or mark.buffer is None:
            text += str(exc)
        else:
            text += f"{exc.problem}\n" + excerpt(mark.buffer, mark.line + 1)
        raise jinja2.TemplateRuntimeError(text) from None
    except AttributeError:
        raise jinja2.TemplateRuntimeError(f"Unable to load yaml from {value}") from None


@strict
def load_json(value):
    if isinstance(value, TemplateModule):
        value = str(value)
    try:
        return json.loads(value)
    except (ValueError, TypeError, AttributeError):
        raise jinja2.TemplateRuntimeError(f"Unable to load json from {value}") from None


@strict
def load_text(value):
    return str(value) if isinstance(value, TemplateModule) else value


FILTERS = {
    "yaml": to_yaml,
    "json": to_json,
    "xml": to_xml,
    "python": to_python,
    "load_yaml": load_yaml,
    "load_json": load_json,
    "load_text": load_text,
    "dict_to_sls_yaml_params": sls_params,
    "combinations": strict(itertools.combinations),
    "combinations_with_replacement": strict(itertools.combinations_with_replacement),
    "compress": strict(itertools.compress),
    "permutations": strict(itertools.permutations),
    "product": strict(itertools.product),
    "zip": strict(zip),
    "zip_longest": strict(itertools.zip_longest),
}


class SerializerExtension(Extension):
    """load_*, import_* and profile."""

    tags = {"load_yaml", "load_json", "load_text", "import_yaml", "import_json", "import_text", "profile"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.filters.update(FILTERS)
        outer = environment.finalize
        environment.finalize = printable if outer is None else lambda value: outer(printable(value))

    def parse(self, parser):
        tag = parser.stream.current
        verb, _, form = tag.value.partition("_")
        if verb == "load":
            return self._load(parser, tag)
        if verb == "import":
            return self._import(parser, tag, "load_" + form)
        next(parser.stream)
        parser.stream.expect("name:as")
        label = parser.parse_expression()
        body = parser.parse_statements(("name:endprofile",), drop_needle=True)
        return [nodes.ExprStmt(label).set_lineno(tag.lineno), *body]

    @staticmethod
    def _load(parser, tag):
        next(parser.stream)
        parser.stream.expect("name:as")
        target = parser.parse_assign_target()
        body = parser.parse_statements(("name:endload",), drop_needle=True)
        name = "_" + parser.free_identifier().name
        call = nodes.Call(nodes.Name(name, "load"), [], [], None, None)
        data = nodes.Filter(call, tag.value, [], [], None, None)
        made = [nodes.Macro(name, [], [], body), nodes.Assign(target, data)]
        return [n.set_lineno(tag.lineno, override=False) for n in made]

    @staticmethod
    def _import(parser, tag, loader):
        imported = parser.parse_import()
        data = nodes.Filter(nodes.Name(imported.target, "load"), loader, [], [], None, None)
        assign = nodes.Assign(nodes.Name(imported.target, "store"), data)
        return [imported, assign.set_lineno(tag.lineno)]
