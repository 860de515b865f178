"""YAML 1.1 and JSON as Salt reads and writes them."""

import base64
import binascii
import json
from collections import OrderedDict, defaultdict

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, SequenceNode
from yaml.parser import ParserError
from yaml.scanner import ScannerError

from renderworker.errors import RenderError

_TAG = "tag:yaml.org,2002:"
_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dump = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Loader(_Base):
    """PyYAML's safe loader with Salt's rules: a key given twice is an error, dates
    stay text, a leading zero doesn't make a number octal."""

    def construct_mapping(self, node, deep=False):
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, f"expected a mapping node, but found {node.id}", node.start_mark)
        self.flatten_mapping(node)
        out = {}
        where = "while constructing a mapping"
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=deep)
            try:
                hash(key)
            except TypeError:
                problem = f"found unacceptable key {key_node.value}"
                raise ConstructorError(where, node.start_mark, problem, key_node.start_mark) from None
            value = self.construct_object(value_node, deep=deep)
            if key in out:
                problem = f"found conflicting ID '{key}'"
                raise ConstructorError(where, node.start_mark, problem, key_node.start_mark)
            out[key] = value
        return out

    def construct_scalar(self, node):
        if node.tag == _TAG + "int" and node.value.startswith("0") and node.value[:2] not in ("0b", "0x"):
            node.value = node.value.lstrip("0") or "0"
        return super().construct_scalar(node)

    def construct_binary(self, node):
        try:
            raw = self.construct_scalar(node).encode("ascii")
        except UnicodeEncodeError as exc:
            problem = f"failed to convert base64 data into ascii: {exc}"
            raise ConstructorError(None, None, problem, node.start_mark) from None
        if len(raw) % 4:
            raw += b"=" * (4 - len(raw) % 4)
        try:
            return base64.decodebytes(raw)
        except binascii.Error as exc:
            raise ConstructorError(None, None, f"failed to decode base64 data: {exc}", node.start_mark) from None

    def flatten_mapping(self, node):
        merged, kept = [], []
        for key_node, value_node in node.value:
            if key_node.tag != _TAG + "merge":
                if key_node.tag == _TAG + "value":
                    key_node.tag = _TAG + "str"
                kept.append((key_node, value_node))
            elif isinstance(value_node, MappingNode):
                self.flatten_mapping(value_node)
                merged.extend(value_node.value)
            elif isinstance(value_node, SequenceNode):
                for part in value_node.value:
                    if not isinstance(part, MappingNode):
                        self._bad_merge(node, part, f"expected a mapping for merging, but found {part.id}")
                    self.flatten_mapping(part)
                for part in reversed(value_node.value):
                    merged.extend(part.value)
            else:
                found = value_node.id
                self._bad_merge(node, value_node, f"expected a mapping or list of mappings for merging, but found {found}")
        names = [k.value for k, _ in kept]
        node.value = [(k, v) for k, v in merged if k.value not in names] + kept

    @staticmethod
    def _bad_merge(node, at, problem):
        raise ConstructorError("while constructing a mapping", node.start_mark, problem, at.start_mark)


Loader.add_constructor(_TAG + "str", Loader.construct_scalar)
Loader.add_constructor(_TAG + "python/unicode", lambda loader, node: node.value)
Loader.add_constructor(_TAG + "timestamp", Loader.construct_scalar)
Loader.add_constructor(_TAG + "binary", Loader.construct_binary)


class OrderedLoader(Loader):
    """The loader of the yaml renderer: maps and !!omap are ordered mappings."""

    def construct_map(self, node):
        out = OrderedDict()
        yield out
        out.update(self.construct_mapping(node))


OrderedLoader.add_constructor(_TAG + "map", OrderedLoader.construct_map)
OrderedLoader.add_constructor(_TAG + "omap", OrderedLoader.construct_map)


class Dumper(_Dump):
    pass


def _mapping(dumper, data):
    return dumper.represent_dict(list(data.items()))


Dumper.add_representer(OrderedDict, _mapping)
Dumper.add_representer(defaultdict, yaml.representer.SafeRepresenter.represent_dict)
Dumper.add_representer(None, lambda dumper, data: dumper.represent_scalar(_TAG + "null", "NULL"))


def load(text):
    return yaml.load(text, Loader=Loader)


def dump(value, **options):
    options.setdefault("allow_unicode", True)
    options.setdefault("default_flow_style", None)
    return yaml.dump(value, Dumper=Dumper, **options)


def render_yaml(text):
    try:
        value = yaml.load(text, Loader=OrderedLoader)
    except ScannerError as exc:
        problem, mark = exc.problem, exc.problem_mark
        if problem == "found character '\\t' that cannot start any token":
            problem = "Illegal tab character"
        raise RenderError(str(problem), mark.line + 1, mark.buffer or "") from None
    except (ParserError, ConstructorError) as exc:
        raise RenderError(str(exc)) from None
    except MemoryError:
        raise
    except Exception as exc:
        raise RenderError(str(exc)) from None
    return value if value else {}


def render_json(text):
    if text.startswith("#!"):
        text = text[text.find("\n") + 1 :]
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise RenderError(str(exc)) from None
