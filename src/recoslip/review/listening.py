"""Host and port -> a socket that listens, its address, and the names that it answers to."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection
from contextlib import suppress

from recoslip.errors import SettingError

FIRST_PORT, PORTS = 20_000, 10_000  # below those that systems give to outgoing connections
LOCAL = ("127.0.0.1", "::1", "localhost")


def bind_own(host: str, port: int, run: str) -> socket.socket:
    """Return a socket that listens; port 0 is the run's own one where that is free, or else any free one.

    A browser keeps names and unsent decisions by port, so a review should have the same one tomorrow.
    """
    if port == 0:
        with suppress(SettingError):
            return bind(host, FIRST_PORT + int(run[:8], 16) % PORTS)
    return bind(host, port)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except (OSError, UnicodeError) as problem:
        raise SettingError(
            f"--host: {host!r:.100} is no address of this machine; give 127.0.0.1, or 0.0.0.0"
        ) from problem
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as problem:
        listening.close()
        raise _unbound(host, port, problem) from problem
    return listening


def _unbound(host: str, port: int, problem: Exception) -> SettingError:
    reason = getattr(problem, "errno", None)
    if reason == errno.EADDRINUSE:
        return SettingError(f"port {port} is in use; give another --port, or 0 for a free one")
    if reason == errno.EACCES:
        return SettingError(f"port {port} is not allowed to this user; give a --port above 1023, or 0 for a free one")
    return SettingError(f"cannot listen at {host} port {port}: {problem}; give another --host or --port")


def allowed_hosts(host: str, port: int, names: Collection[str]) -> set[str]:
    """Return the values of the Host header that the review answers to; a proxy may be at another port."""
    own = {*LOCAL, "[::1]", *({host} if host not in ("0.0.0.0", "::") else ())}
    if host not in LOCAL:
        own.add(socket.gethostname())
    with_port = {f"{name}:{port}" for name in (*own, *names)}
    return {name.lower() for name in (*with_port, *names, *(own if port == 80 else ()))}


def address(host: str, port: int, token: str) -> str:
    """Return the address to open."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/?token={token}"
