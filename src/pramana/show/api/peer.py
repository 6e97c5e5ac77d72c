"""The account of this machine that a connection comes from, as the kernel reports it.

On Linux, a netlink query for one connection takes less than a tenth of a millisecond. Without an answer (another
system, a sandbox without netlink), the account is unknown, and the caller needs a token.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterable
from ipaddress import ip_address

_FORWARDING_HEADERS = frozenset(
    ("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "x-cluster-client-ip")
)
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
"""NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY and NLM_F_REQUEST in the kernel's headers."""
_ANY, _ANY_COOKIE = 0xFFFF_FFFF, b"\xff" * 8
_HEADER, _QUESTION = struct.Struct("=IHHII"), struct.Struct("=BBBxI")
_UID_AND_INODE = struct.Struct("=2I")
_UID_OFFSET = _HEADER.size + 4 + 48 + 3 * 4
"""The user and the inode follow the state, the addresses and three other numbers."""
_STATE_OFFSET, _LISTENING = _HEADER.size + 1, 10
"""Where no connection has the client's address, the kernel answers with a socket that listens on that port."""
_OVERFLOW_UID = 65_534
"""The user that the kernel reports for any account of another user namespace."""
Address = tuple[str, int]


def is_forwarded(headers: Iterable[str]) -> bool:
    """Return whether a request was forwarded by a proxy, given the names of its headers in lower case.

    >>> is_forwarded(["host", "x-forwarded-host"]), is_forwarded(["host", "accept"])
    (True, False)
    """
    return any(name in _FORWARDING_HEADERS or name.startswith(("x-forwarded", "cf-connecting-ip")) for name in headers)


def is_from_own_os_account(client: Address | None, server: Address | None) -> bool:
    """Return whether the client's socket of a loopback connection belongs to the account of this process."""
    if sys.platform != "linux" or client is None or server is None:
        return False
    try:
        uid = _read_socket_uid(client, server)
    except (OSError, ValueError, struct.error):
        return False
    return uid is not None and uid == os.geteuid() != _OVERFLOW_UID


def _read_socket_uid(client: Address, server: Address) -> int | None:
    """Return the account of a client's socket; None if its process has closed it, since it then has no owner."""
    near, far = (ip_address(each[0].partition("%")[0]) for each in (client, server))
    mapped = getattr(near, "ipv4_mapped", None) or near
    if not mapped.is_loopback or near.version != far.version:
        return None
    family = socket.AF_INET if near.version == 4 else socket.AF_INET6
    ports = struct.pack("!HH", client[1], server[1])
    addresses = near.packed.ljust(16, b"\0") + far.packed.ljust(16, b"\0")
    asked = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, _ANY) + ports + addresses + b"\0" * 4 + _ANY_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked, (0, 0))
        said, sender = kernel.recvfrom(4096)
    if sender[0] != 0 or _HEADER.unpack_from(said)[1] != _BY_FAMILY:  # not the kernel, or no such connection
        return None
    if said[_STATE_OFFSET] == _LISTENING:
        return None
    uid, inode = _UID_AND_INODE.unpack_from(said, _UID_OFFSET)
    return uid if inode else None
