"""The address under which a client is counted."""

from ipaddress import IPv6Address, IPv6Network, ip_address


def counted_address(address: str) -> str:
    """The address itself, or for IPv6 its network, because providers give each client a whole network."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))
    return str(ip)
