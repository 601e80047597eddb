"""The addresses to which webhooks may be sent: the public internet, and those that the administrator allows.

The connected address decides, not the name, so `posting` calls `Allowed.permits` with each address when it connects.
`complaint` gives the errors that are known earlier, when a URL is entered.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import httpx2

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: The environment variable that allows further hosts and networks.
SETTING = "ONNXBISECT_WEBHOOK_ALLOW"

#: IANA's special-purpose addresses. Python's `is_global` is not used: it accepts multicast, and IPv6 addresses that
#: embed an IPv4 address, and its result depends on the version of Python.
_SPECIAL: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' networks, and some clouds' metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's platform, for the machines in it: public by number only
        "169.254.0.0/16",  # link-local, and clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "2001::/23",  # protocol assignments; Teredo, which carries an IPv4 address
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which carries an IPv4 address
        "3fff::/20",  # documentation
    )
)
#: All other IPv6 addresses that are routed; NAT64, local and multicast ones are outside.
_UNICAST = IPv6Network("2000::/3")

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?")
_LONGEST_URL = 2000


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Hosts and networks to which webhooks may be sent although they are not public."""

    hosts: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, entries: Iterable[str]) -> "Allowed":
        """Parses the setting: `ci.local`, `*.ci.local`, `10.1.2.3`, `10.0.0.0/8`. ValueError for anything else."""
        hosts, suffixes, networks = set(), [], []
        for entry in entries:
            name = entry.strip().lower().rstrip(".")
            with suppress(ValueError):  # it is a host
                networks.append(ipaddress.ip_network(name, strict=False))
                continue
            if _HOST.fullmatch(name.removeprefix("*.")) is None:
                raise ValueError(
                    f"{entry!r} is no host and no network: write it as ci.local, *.ci.local or 10.0.0.0/8."
                )
            if name.startswith("*."):
                suffixes.append(name[1:])
            else:
                hosts.add(name)
        return cls(hosts=frozenset(hosts), suffixes=tuple(suffixes), networks=tuple(networks))

    def names(self, host: str) -> bool:
        """Whether the host is allowed by name, whatever its addresses are."""
        name = host.lower().rstrip(".")
        return name in self.hosts or name.endswith(self.suffixes)

    def permits(self, host: str, address: Address) -> bool:
        """Whether a webhook to `host` may be sent to this address of it."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return self.names(host) or _is_public(address) or any(address in network for network in self.networks)


def complaint(url: str, allow: Iterable[str]) -> str | None:
    """The reason why a webhook cannot have this URL, as a sentence; `allow` is the setting of that name.

    None if there is none yet: the addresses of a host name are only checked when a message is sent.
    """
    if len(url) > _LONGEST_URL:
        return f"The webhook's URL is longer than {_LONGEST_URL} characters."
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return "The webhook's URL cannot be read: write it as https://host/path."
    host = parsed.raw_host.decode("ascii")
    if parsed.scheme not in ("http", "https"):
        return "The webhook's URL must begin with https:// or http://."
    if parsed.userinfo:
        return "The webhook's URL must not hold a user name or password: messages are signed instead."
    if not host:
        return "The webhook's URL names no host."
    if literal(host) is None and _HOST.fullmatch(host) is None:
        return "The webhook's URL names a host that cannot be: write it as https://host/path."
    if parsed.port is not None and not 0 < parsed.port < 65536:
        return "The webhook's URL names a port that cannot be."
    allowed = Allowed.read(allow)
    name = host.rstrip(".")
    address = literal(name)
    local = name == "localhost" or name.endswith(".localhost")
    if allowed.names(host) or (address is None and not local):
        return None
    return None if allowed.permits(host, address or IPv4Address("127.0.0.1")) else refusal(host)


def refusal(host: str) -> str:
    """The message for a host that is not allowed. It omits the address, which the caller may not know."""
    return (
        f"{host} is not on the public internet: the service's administrator can allow the host or its network "
        f"with {SETTING}."
    )


def literal(host: str) -> Address | None:
    """The address that `host` spells, in any form that the system's resolver accepts: 127.1, 0x7f.1, 2130706433, ..."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address not in _UNICAST or address.scope_id is not None):
        return False
    return not any(address in network for network in _SPECIAL)
