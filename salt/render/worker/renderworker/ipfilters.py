"""Filters about addresses and networks."""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from types import GeneratorType

from renderworker import errors

_KINDS = {
    "global": lambda ip: not ip.is_private,
    "public": lambda ip: not ip.is_private,
    "link-local": lambda ip: ip.is_link_local,
    "linklocal": lambda ip: ip.is_link_local,
    "ll": lambda ip: ip.is_link_local,
    "link_local": lambda ip: ip.is_link_local,
    "loopback": lambda ip: ip.is_loopback,
    "lo": lambda ip: ip.is_loopback,
    "multicast": lambda ip: ip.is_multicast,
    "private": lambda ip: ip.is_private,
    "reserved": lambda ip: ip.is_reserved,
    "site-local": lambda ip: ip.version == 6 and ip.is_site_local,
    "sl": lambda ip: ip.version == 6 and ip.is_site_local,
    "site_local": lambda ip: ip.version == 6 and ip.is_site_local,
    "unspecified": lambda ip: ip.is_unspecified,
}


def _address(value, version, options=None):
    """The address as text if it has the requested version and every requested kind."""
    for parse in (ipaddress.ip_address, ipaddress.ip_interface):
        try:
            ip = parse(value)
            break
        except ValueError:
            continue
    else:
        return None
    if ip.version != version:
        return None
    for name in (options or "").split(","):
        if name.strip() in _KINDS and not _KINDS[name.strip()](ip):
            return None
    return str(ip)


def _many(value):
    return isinstance(value, (list, tuple, GeneratorType))


def _of_version(value, version, options):
    if isinstance(value, (str, bytes)):
        return _address(value, version, options)
    if _many(value):
        found = (_address(v, version, options) for v in value)
        return [v for v in found if v is not None]
    return None


def ipv4(value, options=None):
    return _of_version(value, 4, options)


def ipv6(value, options=None):
    return _of_version(value, 6, options)


def ipaddr(value, options=None):
    four, six = ipv4(value, options), ipv6(value, options)
    if four is None or six is None:
        return four or six
    return four + six


def is_ipv4(ip_addr, options=None):
    return _address(ip_addr, 4, options) is not None


def is_ipv6(ip_addr, options=None):
    return _address(ip_addr, 6, options) is not None


def is_ip(ip_addr, options=None):
    return is_ipv4(ip_addr, options) or is_ipv6(ip_addr, options)


def _per_address(function):
    def apply(value, options=None, version=None):
        if version:
            found = {4: ipv4, 6: ipv6}[version](value, options) if version in (4, 6) else None
        else:
            found = ipaddr(value, options)
        if not found:
            return None
        if not _many(value):
            return function(found if isinstance(found, str) else found[0])
        return [function(v) for v in found]

    return apply


def _network(value):
    return ipaddress.ip_network(value, strict=False)


def _bracket(value):
    ip = ipaddress.ip_address(str(value).lstrip("[").rstrip("]"))
    return f"[{ip}]" if ip.version == 6 else str(ip)


def ipwrap(data):
    if isinstance(data, (list, tuple)):
        return [_bracket(v) if _address(v, 6) else v for v in data]
    return _bracket(data) if _address(data, 6) else data


def filter_by_networks(values, networks):
    if networks is None:
        return values
    networks = [ipaddress.ip_network(n) for n in networks]

    def inside(ips):
        return [ip for ip in ips for net in networks if ipaddress.ip_address(ip) in net]

    if isinstance(values, Mapping):
        return {name: inside(ips) for name, ips in values.items()}
    if isinstance(values, Sequence):
        return inside(values)
    raise ValueError(f"Do not know how to filter a {type(values)}")


def mac_str_to_bytes(mac_str):
    if len(mac_str) == 17:
        mac_str = mac_str.replace(mac_str[2], "")
    elif len(mac_str) != 12:
        raise ValueError("Invalid MAC address")
    return bytes(int(mac_str[i : i + 2], 16) for i in range(0, 12, 2))


def dns_check(addr, port, safe=False, ipv6=None):
    """The first address of a name that accepts a connection, or else the first."""
    family = {None: socket.AF_UNSPEC, True: socket.AF_INET6, False: socket.AF_INET}[ipv6]
    try:
        infos = socket.getaddrinfo(addr, port, family, socket.SOCK_STREAM)
    except OSError:
        raise errors.SaltException(f"DNS lookup or connection check of '{addr}' failed.") from None
    for info in infos:
        with socket.socket(info[0], socket.SOCK_STREAM) as conn:
            conn.settimeout(2)
            try:
                conn.connect(info[4][:2])
            except OSError:
                continue
            return _bracket(info[4][0])
    return _bracket(infos[0][4][0])


FILTERS = {
    "filter_by_networks": filter_by_networks,
    "ip_host": _per_address(lambda v: str(ipaddress.ip_interface(v))),
    "ipaddr": ipaddr,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "ipwrap": ipwrap,
    "is_ip": is_ip,
    "is_ipv4": is_ipv4,
    "is_ipv6": is_ipv6,
    "mac_str_to_bytes": mac_str_to_bytes,
    "network_hosts": _per_address(lambda v: [str(host) for host in _network(v).hosts()]),
    "network_size": _per_address(lambda v: _network(v).num_addresses),
}

VOLATILE = {"dns_check": dns_check}
