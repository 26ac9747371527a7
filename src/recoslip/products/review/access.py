"""Host, port and token -> who gets in: our own page in a browser that has the token."""

import hmac
import socket
from collections.abc import Collection
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recoslip.base.errors import SettingError
from recoslip.pipeline.report.html import fill

FIRST_PORT, PORTS = 20_000, 10_000  # below those that systems give to outgoing connections
LOCAL = ("127.0.0.1", "::1", "localhost")
YEAR = 365 * 24 * 3600  # seconds
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class Guard:
    """Let a request through if its Host is allowed, if it brings the token, and, to change something, from our page.

    The Host is checked because a foreign name can be made to point here (DNS rebinding), the Origin because a foreign
    page can make a browser send requests.
    """

    def __init__(self, app: ASGIApp, *, token: str, cookie: str, hosts: Collection[str]) -> None:
        """Wrap an application.

        Args:
            app: what answers the requests that are let through.
            token: the secret.
            cookie: the name under which a browser keeps the secret.
            hosts: values of the Host header that are allowed, in lower case.
        """
        self.app, self.token, self.cookie, self.hosts = app, token, cookie, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Content-Security-Policy", NOTHING)
            await send(message)

        answer = self._answer(Request(scope))
        await (self.app if answer is None else answer)(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is not let through; None for one that is."""
        host = request.headers.get("host", "").lower()
        if host not in self.hosts:
            return _refusal(421, f"this review is not called {host!r:.100}; allow that name with --allow-host")
        if request.method == "GET" and request.url.path == "/" and "token" in request.query_params:
            if not self._is_token(request.query_params["token"]):
                return _no_token()
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(self.cookie, self.token, max_age=YEAR, httponly=True, samesite="strict")
            return welcome
        if not self._is_token(request.cookies.get(self.cookie, "")):
            if request.url.path == "/":
                return _no_token()
            return _refusal(403, "this review needs its token; open the address that recoslip review printed")
        return _foreign(request, host) if request.method not in ("GET", "HEAD") else None

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())


def _foreign(request: Request, host: str) -> Response | None:
    """Return a refusal unless a request that changes something comes from a script of our own page."""
    if request.headers.get("origin", "").lower() not in (f"http://{host}", f"https://{host}"):
        return _refusal(403, "a request that changes something must come from the page of the review")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _refusal(415, "expected the content type application/json")
    return None


def _no_token() -> Response:
    """Ask for the token. A browser sends no strict cookie along when a link on another site leads here."""
    return HTMLResponse(fill("products/review/no_token.html", title="Review"), 403)


def _refusal(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)


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
        reason = getattr(problem, "strerror", None) or problem
        raise SettingError(
            f"cannot listen at {host} port {port}: {reason}; give another --port above 1023, or 0 for a free one, or "
            "another --host"
        ) from problem
    return listening


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
