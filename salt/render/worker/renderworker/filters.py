"""Salt's filters, tests and globals."""

import base64
import fnmatch
import hashlib
import hmac
import io
import json
import posixpath
import re
import shlex
import sys
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Mapping

import jinja2
import jinja2.filters
import jinja2.utils
import jmespath
import markupsafe
import yaml

from renderworker import errors, ipfilters, localfiles, volatile
from renderworker.structured import load as load_yaml
from renderworker.tags import strict

NAMESPACE = uuid.UUID("91633EBF-1C86-5E33-935A-28061F4B480E")  # of Salt's uuid filter


def install(env):
    env.filters.update(FILTERS)
    env.filters.update(ipfilters.FILTERS)
    for name, function in {**volatile.FILTERS, **localfiles.FILTERS, **ipfilters.VOLATILE}.items():
        env.filters[name] = unfolded(function)
    env.filters["random"] = _random_item
    env.filters["http_query"] = _http_query
    env.tests.update(match=match, equalto=lambda value, other: value == other, list=is_list)
    env.globals.update({"raise": _raise, "ifelse": ifelse, "show_full_context": _full_context})
    env.globals["lipsum"] = unfolded(jinja2.utils.generate_lorem_ipsum)


def unfolded(function):
    """A function that depends on more than its arguments: it is never folded into
    a compiled template, and its render is not cached."""

    @jinja2.pass_context
    def called(context, *args, **kwargs):
        context.environment.state.impure = True
        return function(*args, **kwargs)

    return called


@jinja2.pass_context
def _random_item(context, value):
    context.environment.state.impure = True
    return jinja2.filters.do_random(context, value)


@jinja2.pass_context
def _http_query(context, url, **options):
    return context.environment.state.functions.call("http.query", [url], options)


def _raise(message):
    raise errors.TemplateError(message)


@jinja2.pass_context
def ifelse(context, *args, **options):
    """Pairs of target and value, and a default; the master matches the targets."""
    if len(args) % 2 == 0:
        raise errors.SaltException("The ifelse function must have an odd number of arguments!")
    if len(args) == 1:
        return args[0]
    fixed = {True: "*", False: "SALT_IFELSE_MATCH_NOTHING"}
    lookup = {fixed[k] if isinstance(k, bool) else k: v for k, v in zip(args[:-1:2], args[1::2])}
    lookup["SALT_IFELSE_FUNCTION_DEFAULT"] = args[-1]
    wanted = {"lookup": lookup, "tgt_type": options.get("tgt_type", "compound"), "default": "SALT_IFELSE_FUNCTION_DEFAULT"}
    for name in ("minion_id", "merge", "merge_lists"):
        if options.get(name):
            wanted[name] = options[name]
    return context.environment.state.functions.call("match.filter_by", [], wanted)


@jinja2.pass_context
def _full_context(context):
    return _simple(context.plain())


def _simple(data):
    keys = (str, int, float, bool)
    if isinstance(data, (list, tuple)):
        return [_simple_value(v, (dict, list)) for v in data]
    return {k if k is None or isinstance(k, keys) else repr(k): _simple_value(v, (dict, list, tuple)) for k, v in data.items()}


def _simple_value(value, nested):
    if isinstance(value, nested):
        return _simple(value)
    if value is None or isinstance(value, (str, int, float, list, tuple)):
        return value
    return repr(value)


# Text


def to_text(value):
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8")
    raise TypeError(f"expected str, bytes, or bytearray not {type(value)}")


def to_bytes(s, encoding="utf-8", errors="strict"):
    if isinstance(s, (bytes, bytearray)):
        return bytes(s)
    if isinstance(s, str):
        return s.encode(encoding or "utf-8", errors)
    raise TypeError(f"expected str, bytes, or bytearray not {type(s)}")


def _flags(ignorecase, multiline):
    return (re.I if ignorecase else 0) | (re.M if multiline else 0)


def match(txt, rgx, ignorecase=False, multiline=False):
    return re.compile(rgx, _flags(ignorecase, multiline)).match(txt) is not None


def _groups(found):
    if found:
        return found.groups() or (found.group(),)
    return None


def regex_search(txt, rgx, ignorecase=False, multiline=False):
    return _groups(re.search(rgx, txt, _flags(ignorecase, multiline)))


def regex_match(txt, rgx, ignorecase=False, multiline=False):
    return _groups(re.match(rgx, txt, _flags(ignorecase, multiline)))


def regex_replace(txt, rgx, val, ignorecase=False, multiline=False):
    expr = re.compile(rgx, _flags(ignorecase, multiline))
    if isinstance(txt, markupsafe.Markup) and isinstance(val, str) and "\\" in val:
        # Up to CPython 3.11, which Salt has, groups and what is between them are escaped.
        return expr.sub(lambda m: str(markupsafe.escape(m.expand(val))), str(txt))
    return expr.sub(val, txt)


def to_bool(val):
    if val is None or isinstance(val, bool):
        return bool(val)
    if isinstance(val, str):
        return val.lower() in ("yes", "1", "true")
    if isinstance(val, int):
        return val > 0
    return not isinstance(val, Hashable) and len(val) > 0


def to_num(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def is_hex(value):
    try:
        int(value, 16)
    except (TypeError, ValueError):
        return False
    return True


def human_to_bytes(size, default_unit="B", handle_metric=False):
    number, unit = re.match(r"([0-9.]*)\s*(.*)$", str(size).strip()).groups()
    unit = unit.lower() or default_unit.lower()
    number = to_num(number)
    if isinstance(number, str):
        return 0
    if re.match(r"[kmgtpezy]b$", unit):
        power = 1000 if handle_metric else 1024
    elif re.match(r"(b|[kmgtpezy](ib)?)$", unit):
        power = 1024
    else:
        return 0
    return int(number * power ** "bkmgtpezy".index(unit[0]))


def snake_case(camel_input):
    text = camel_input
    out = text[0].lower()
    for before, letter, after in zip(text, text[1:], text[2:] + " "):
        if letter.isupper() and (before.islower() or after.islower()):
            out += "_"
        out += letter.lower()
    return out


def camel_case(snake_input, uppercamel=False):
    first, *rest = snake_input.split("_")
    return (first.capitalize() if uppercamel else first) + "".join(word.capitalize() for word in rest)


def path_join(*parts, **kwargs):
    kwargs.pop("use_posixpath", None)
    if kwargs:
        listed = ", ".join(f"{k}={v}" for k, v in kwargs.items())
        raise errors.SaltInvocationError(f"The following keyword arguments are not valid: {listed}")
    first, *rest = [posixpath.normpath(to_text(p)) for p in parts]
    return posixpath.normpath(posixpath.join(first, *(p.lstrip("/") for p in rest)))


def _expression(line, expression):
    try:
        return fnmatch.fnmatch(line, expression) or re.match(rf"\A{expression}\Z", line) is not None
    except (re.error, TypeError):
        return False


def check_whitelist_blacklist(value, whitelist=None, blacklist=None):
    allowed = _expressions("whitelist", whitelist)
    barred = _expressions("blacklist", blacklist)
    if any(_expression(value, e) for e in barred):
        return False
    return not allowed or any(_expression(value, e) for e in allowed)


def _expressions(name, value):
    if not value:
        return []
    if isinstance(value, str):
        return [value]
    if not hasattr(value, "__iter__"):
        raise TypeError(f"Expecting iterable {name}, but got {type(value).__name__} ({value})")
    return list(value)


# Hashes and encodings


def _hex(name):
    return lambda instr: hashlib.new(name, to_bytes(instr)).hexdigest()


def base64_encode(instr):
    return base64.b64encode(to_bytes(instr)).decode("ascii")


def base64_decode(instr):
    raw = base64.b64decode(to_bytes(instr))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _hmac(string, shared_secret):
    return hmac.new(to_bytes(shared_secret), to_bytes(string), hashlib.sha256)


def hmac_signature(string, shared_secret, challenge_hmac):
    return base64.b64encode(_hmac(string, shared_secret).digest()) == to_bytes(challenge_hmac)


def _encoded(data, within):
    """Turn text into bytes at every depth; where a container is within itself, it becomes None."""
    if id(data) in within:
        return None
    if isinstance(data, Mapping):
        return _encoded_dict(data, within)
    if isinstance(data, (list, tuple)):
        return _encoded_list(data, within)
    return data.encode("utf-8") if isinstance(data, str) else data


def _encoded_dict(data, within):
    within |= {id(data)}
    return {_encoded(k, within): _encoded(v, within) for k, v in data.items()}


def _encoded_list(data, within):
    within |= {id(data)}
    return [_encoded(v, within) for v in data]


def encoded_dict(data):
    return _encoded_dict(data, frozenset())


def encoded_list(data):
    return _encoded_list(data, frozenset())


@strict
def to_json(val, indent=None, **options):
    options.setdefault("ensure_ascii", True)
    if indent is not None:
        options["indent"] = indent
    out = json.dumps(val, **options)
    for char in "<>&'":
        out = out.replace(char, f"\\u{ord(char):04x}")
    return out


def _written(write):
    with io.StringIO() as out:
        write(yaml.emitter.Emitter(out, width=sys.maxsize))
        return out.getvalue()


def yaml_dquote(text):
    return _written(lambda emitter: emitter.write_double_quoted(str(text)))


def yaml_squote(text):
    return _written(lambda emitter: emitter.write_single_quoted(str(text)))


def yaml_encode(data):
    node = yaml.representer.SafeRepresenter().represent_data(data)
    if not isinstance(node, yaml.ScalarNode):
        raise TypeError(f"yaml_encode() only works with YAML scalar data; failed for {type(data)}")
    return yaml_dquote(node.value) if node.tag.endswith(":str") else node.value


# Lists


def is_list(value):
    return isinstance(value, list)


def is_iter(thing, ignore=(str,)):
    if ignore and isinstance(thing, ignore):
        return False
    try:
        iter(thing)
    except TypeError:
        return False
    return True


def sequence(data):
    return data if isinstance(data, (list, tuple, set, dict)) else [data]


def unique(values):
    if isinstance(values, Hashable):
        return set(values)
    out = []
    for value in values:
        if value not in out:
            out.append(value)
    return out


def _both(lst1, lst2, sets, lists):
    if isinstance(lst1, Hashable) and isinstance(lst2, Hashable):
        return sets(set(lst1), set(lst2))
    return unique(lists(lst1, lst2))


def union(lst1, lst2):
    return _both(lst1, lst2, set.__or__, lambda a, b: a + b)


def intersect(lst1, lst2):
    return _both(lst1, lst2, set.__and__, lambda a, b: [v for v in a if v in b])


def difference(lst1, lst2):
    return _both(lst1, lst2, set.__sub__, lambda a, b: [v for v in a if v not in b])


def symmetric_difference(lst1, lst2):
    return _both(lst1, lst2, set.__xor__, lambda a, b: [v for v in union(a, b) if v not in intersect(a, b)])


def avg(lst):
    return float(lst) if isinstance(lst, Hashable) else float(sum(lst) / len(lst))


def flatten(data, levels=None, preserve_nulls=False, _within=()):
    if id(data) in _within:
        raise RecursionError("Reference cycle detected. Check input list.")
    out = []
    for element in data:
        if not preserve_nulls and element in (None, "None", "null"):
            continue
        if is_iter(element) and (levels is None or levels >= 1):
            less = None if levels is None else int(levels) - 1
            out.extend(flatten(element, less, preserve_nulls, (*_within, id(data))))
        else:
            out.append(element)
    return out


def exactly_n(iterable, amount=1):
    rest = iter(iterable)
    return all(any(rest) for _ in range(amount)) and not any(rest)


def compare_lists(old=None, new=None):
    out = {}
    for name, here, there in (("new", new, old), ("old", old, new)):
        missing = [v for v in here if v not in there]
        if missing:
            out[name] = missing
    return out


def mysql_to_dict(data, key):
    headers, out = None, {}
    for line in data:
        if not line or line.startswith("+"):
            continue
        cells = [c.strip() for c in line.split("|")]
        if headers is None:
            headers = cells if len(cells) > 1 else None
            continue
        row = {headers[i]: to_num(cells[i]) for i in range(1, len(headers) - 1)}
        out[row[key]] = row
    return out


# Mappings


def compare_dicts(old=None, new=None):
    out = {}
    for key in set(new or {}).union(old or {}):
        if key not in old:
            out[key] = {"old": "", "new": new[key]}
        elif key not in new:
            out[key] = {"new": "", "old": old[key]}
        elif new[key] != old[key]:
            out[key] = {"old": old[key], "new": new[key]}
    return out


def traverse(data, key, default=None, delimiter=":"):
    if isinstance(key, str):
        key = key.split(delimiter)
    elif isinstance(key, int):
        key = [key]
    at = data
    for step in key:
        at = _step(at, step)
        if at is _MISSING:
            return default
    return at


_MISSING = object()


def _step(at, step):
    if isinstance(at, list):
        try:
            wanted = int(step)
        except ValueError:
            wanted = step
        for inner in at:
            if isinstance(inner, dict) and wanted in inner:
                return inner[wanted]
        if isinstance(wanted, int):
            try:
                return at[wanted]
            except IndexError:
                pass
        return _MISSING
    try:
        return at[step]
    except TypeError:
        return _MISSING
    except KeyError:
        pass
    try:
        other = load_yaml(step) if isinstance(step, str) else step
        return _MISSING if other == step else at[other]
    except (yaml.YAMLError, KeyError, TypeError):
        return _MISSING


def _place(in_dict, keys, delimiter, ordered_dict):
    *path, last = keys.split(delimiter) if delimiter in keys else [keys]
    at = in_dict
    for step in path:
        if not isinstance(at.get(step), dict):
            at[step] = OrderedDict() if ordered_dict else {}
        at = at[step]
    return at, last


def set_key(in_dict, keys, value, delimiter=":", ordered_dict=False):
    at, last = _place(in_dict, keys, delimiter, ordered_dict)
    at[last] = value
    return in_dict


def _changing(method, verb, empty, wrong):
    def change(in_dict, keys, value, delimiter=":", ordered_dict=False):
        at, last = _place(in_dict, keys, delimiter, ordered_dict)
        if at.get(last) is None:
            at[last] = OrderedDict() if ordered_dict and empty is dict else empty()
        try:
            getattr(at[last], method)(value)
        except AttributeError:
            text = f"The last key contains a {type(at[last])}, which cannot {verb}."
            raise errors.SaltInvocationError(text) from None
        except wrong:
            text = f"Cannot {verb} {type(at[last])} with a {type(value)}."
            raise errors.SaltInvocationError(text) from None
        return in_dict

    return change


def to_entries(data):
    if isinstance(data, dict):
        return [{"key": k, "value": v} for k, v in data.items()]
    if isinstance(data, list):
        return [{"key": i, "value": v} for i, v in enumerate(data)]
    raise errors.SaltException("Input data must be a dict or list")


def from_entries(entries):
    out = {}
    for entry in entries:
        entry = {k.lower() if isinstance(k, str) else k: v for k, v in dict(entry or {}).items()}
        name = entry.get("key") or entry.get("name")
        if name:
            out[name] = entry.get("value")
    return out


def json_query(data, expr):
    return jmespath.search(expr, data)


def method_call(obj, f_name, *f_args, **f_kwargs):
    return getattr(obj, f_name, lambda *args, **kwargs: None)(*f_args, **f_kwargs)


FILTERS = {
    "append_dict_key_value": _changing("append", "append", list, ()),
    "avg": avg,
    "base64_decode": base64_decode,
    "base64_encode": base64_encode,
    "check_whitelist_blacklist": check_whitelist_blacklist,
    "compare_dicts": compare_dicts,
    "compare_lists": compare_lists,
    "contains_whitespace": lambda text: any(c.isspace() for c in text),
    "difference": difference,
    "exactly_n_true": exactly_n,
    "exactly_one_true": exactly_n,
    "extend_dict_key_value": _changing("extend", "extend", list, TypeError),
    "flatten": flatten,
    "from_entries": from_entries,
    "hmac": hmac_signature,
    "hmac_compute": lambda string, shared_secret: _hmac(string, shared_secret).hexdigest(),
    "human_to_bytes": human_to_bytes,
    "intersect": intersect,
    "is_hex": is_hex,
    "is_iter": is_iter,
    "is_list": is_list,
    "json_decode_dict": encoded_dict,
    "json_decode_list": encoded_list,
    "json_encode_dict": encoded_dict,
    "json_encode_list": encoded_list,
    "json_query": json_query,
    "max": max,
    "md5": _hex("md5"),
    "method_call": method_call,
    "min": min,
    "mysql_to_dict": mysql_to_dict,
    "path_join": path_join,
    "quote": shlex.quote,
    "regex_escape": re.escape,
    "regex_match": regex_match,
    "regex_replace": regex_replace,
    "regex_search": regex_search,
    "sequence": sequence,
    "set_dict_key_value": set_key,
    "sha1": _hex("sha1"),
    "sha256": _hex("sha256"),
    "sha512": _hex("sha512"),
    "skip": lambda data: "",
    "sorted_ignorecase": lambda to_sort: sorted(to_sort, key=lambda v: v.lower()),
    "str_to_num": to_num,
    "substring_in_list": lambda wanted, texts: any(wanted in t for t in texts),
    "symmetric_difference": symmetric_difference,
    "to_bool": to_bool,
    "to_bytes": to_bytes,
    "to_camelcase": camel_case,
    "to_entries": to_entries,
    "to_num": to_num,
    "to_snake_case": snake_case,
    "tojson": to_json,
    "traverse": traverse,
    "union": union,
    "unique": unique,
    "update_dict_key_value": _changing("update", "update", dict, (ValueError, TypeError)),
    "uuid": lambda val: str(uuid.uuid5(NAMESPACE, to_text(val))),
    "yaml_dquote": yaml_dquote,
    "yaml_encode": yaml_encode,
    "yaml_squote": yaml_squote,
}
