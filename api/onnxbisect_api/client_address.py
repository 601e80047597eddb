"""The address by which clients are counted."""

from ipaddress import IPv6Address, IPv6Network, ip_address


def counted_address(address: str) -> str:
    """Providers give each IPv6 client a network of addresses: they count as one."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))
    return str(ip)
