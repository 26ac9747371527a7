"""Requests -> those that come from our own page in a browser that has the token."""

from __future__ import annotations

import hmac
from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

# A browser sends no strict cookie along when a link on another site leads here; the link on this page does.
NO_TOKEN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>
<main><h1>This review needs its token</h1>
<p>Open the address that <code>recoslip review</code> printed, with everything after <code>?token=</code>.</p>
<p>If you have just done so from a link in another page, <a href="/">go on to the review</a>.</p></main></html>"""


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
                return HTMLResponse(NO_TOKEN, 403)
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(self.cookie, self.token, max_age=YEAR, httponly=True, samesite="strict")
            return welcome
        if not self._is_token(request.cookies.get(self.cookie, "")):
            if request.url.path == "/":
                return HTMLResponse(NO_TOKEN, 403)
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


def _refusal(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)
