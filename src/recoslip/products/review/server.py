"""A review -> the pages and answers that browsers get, from one process."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from recoslip.base.errors import RecoslipError, SettingError
from recoslip.base.json_files import JsonFileError, parse_json
from recoslip.pipeline.report.html import asset, policy_of, saved_report
from recoslip.products.review.decisions import check_name, export, parse_decisions
from recoslip.products.review.guard import Guard
from recoslip.products.review.room import ReviewSession, user_name
from recoslip.products.review.store import Entry, ReviewError

# One function of small files, in this order: what a file declares, those after it use. The report calls it when drawn.
SCRIPTS = ("outbox.js", "state.js", "queue.js", "news.js", "keys.js", "view.js", "review.js")


def review_page(folder: Path, config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the report's HTML with the review and its configuration, and the ids of its nodes in their order."""
    report = saved_report(folder)
    html = report.html(scripts=[_script()], styles=[asset("products/review/review.css")], config=config)
    return html, list(map(str, report.data["nodes"]["id"]))


@cache
def _script() -> str:
    """Return the review's JavaScript."""
    return (
        '"use strict";\nwindow.recoslipRoom = (api) => {\n'
        + "\n".join(asset(f"products/review/{name}") for name in SCRIPTS)
        + "};\n"
    )


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


log = logging.getLogger("recoslip")

MAX_BODY, MAX_IMPORT = 2**16, 2**23  # bytes
MAX_EVENTS = 100  # in one request
LONGEST_WAIT = 20.0  # seconds that a request for news is kept waiting
LOOK_EVERY = 0.3  # seconds: other processes write into the journal too


class TooLargeError(RecoslipError):
    """A request has a longer body than is allowed."""

    status = 413


class Answers:
    """The answers to the requests of a review, one function each."""

    def __init__(self, room: ReviewSession, page: str, shown: list[str]) -> None:
        """Store what is answered with.

        Args:
            room: the review.
            page: the HTML of the page.
            shown: the ids of the nodes on the page, in its order.
        """
        self.room, self._page = room, page
        position = {node: k for k, node in enumerate(room.ranking.ids)}
        if unknown := [node for node in shown if node not in position]:
            raise ReviewError(f"report.json names {unknown[0]!r:.60}, which the scores do not have; run detect again")
        self._shown = [position[node] for node in shown]
        self.is_closing = False  # requests that wait for news are answered then

    def routes(self) -> list[Route]:
        """Return the addresses and what answers them."""
        return [
            Route("/", self.page),
            Route("/api/state", self.state),
            Route("/api/events", self.events, methods=["POST"]),
            Route("/api/queue", self.queue),
            Route("/api/scores", self.scores),
            Route("/api/learn", self.learn, methods=["POST"]),
            Route("/api/certificate", self.certificate),
            Route("/api/sample", self.sample, methods=["POST"]),
            Route("/certificate.html", self.certificate_page),
            Route("/api/export.csv", self.export),
            Route("/api/import", self.import_, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        """Answer with the page."""
        return _html(self._page)

    async def state(self, request: Request) -> Response:
        """Answer with what is new since a number; with `wait`, as soon as there is something."""
        since, wait = _number(request, "since", 0), min(_number(request, "wait", 0), LONGEST_WAIT)
        rankings = _number(request, "rankings", self.room.rankings)
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while loop.time() < end and self.room.rankings == rankings and not self.is_closing:
            if await run_in_threadpool(self.room.store.last) > since or await request.is_disconnected():
                break
            await asyncio.sleep(LOOK_EVERY)
        return JSONResponse(await run_in_threadpool(self.room.changes, since))

    async def events(self, request: Request) -> Response:
        """Record the events of a request, all or none."""
        sent = (await _body(request, MAX_BODY)).get("events")
        if type(sent) is not list or not 1 <= len(sent) <= MAX_EVENTS:
            raise ReviewError(f"expected a list of 1 to {MAX_EVENTS} events under 'events'")
        recorded = await run_in_threadpool(self.room.record, [_entry(event) for event in sent])
        return JSONResponse({"events": [{"seq": event.seq, "key": event.key} for event in recorded]})

    async def queue(self, request: Request) -> Response:
        """Answer with the nodes whose verdict teaches most."""
        return JSONResponse({"nodes": await run_in_threadpool(self.room.queue, _number(request, "count", 20))})

    async def learn(self, request: Request) -> Response:
        """Learn from the verdicts and answer with the new scores."""
        await _body(request, MAX_BODY)
        await run_in_threadpool(self.room.learn)
        return await self.scores(request)

    async def scores(self, request: Request) -> Response:
        """Answer with the scores that were learned last, in the order of the page's nodes."""
        scores = self.room.scores
        values = None if scores is None else [round(value, 6) for value in scores[self._shown].tolist()]
        return JSONResponse({"rankings": self.room.rankings, "scores": values})

    async def certificate(self, request: Request) -> Response:
        """Answer with the sample, how far it is reviewed, and what it certifies."""
        return JSONResponse(await run_in_threadpool(self._certificate))

    def _certificate(self) -> dict[str, Any]:
        sample, certificate = self.room.sampled(), self.room.certificate()
        if sample is None or certificate is None:
            return {"proposed": self.room.proposed(), "nodes": None}
        return {"nodes": list(sample.nodes), "sentence": certificate.sentence, "facts": certificate.to_dict()}

    async def certificate_page(self, request: Request) -> Response:
        """Answer with the certificate as a page of its own."""
        certificate = await run_in_threadpool(self.room.certificate)
        if certificate is None:
            raise ReviewError("there is no certificate before a sample is drawn")
        return _html(certificate.html())

    async def sample(self, request: Request) -> Response:
        """Draw the sample of the certificate."""
        sent = await _body(request, MAX_BODY)
        size, who = sent.get("size"), sent.get("who")
        if type(who) is not str or (size is not None and not (type(size) is int and 0 < size < 2**31)):
            raise ReviewError("expected a name under 'who' and a number above 0, or nothing, under 'size'")
        return JSONResponse({"nodes": await run_in_threadpool(self.room.draw, check_name(who), size)})

    async def export(self, request: Request) -> Response:
        """Answer with what stands, as CSV."""
        table = await run_in_threadpool(lambda: export(self.room.decisions, self.room.ranking))
        headers = {"Content-Disposition": 'attachment; filename="decisions.csv"'}
        return Response(table, media_type="text/csv; charset=utf-8", headers=headers)

    async def import_(self, request: Request) -> Response:
        """Record what a table says that was filled in by hand."""
        sent = await _body(request, MAX_IMPORT)
        table, who = sent.get("csv"), sent.get("who")
        if type(table) is not str or type(who) is not str:
            raise ReviewError("expected a table under 'csv' and a name under 'who'")
        count = await run_in_threadpool(self._import, table, check_name(who))
        return JSONResponse({"recorded": count})

    def _import(self, table: str, who: str) -> int:
        return self.room.import_decisions(parse_decisions(table.encode(), self.room.ranking, who, "the table"))


def make_app(answers: Answers, hosts: Collection[str]) -> Guard:
    """Return the application behind its guard."""
    store = answers.room.store
    app = Starlette(
        routes=answers.routes(),
        exception_handlers={RecoslipError: _sentence, 404: _nothing_here, 405: _nothing_here, 500: _failure},
    )
    return Guard(app, token=store.token, cookie=f"recoslip_{store.run[:12]}", hosts=hosts)


async def _sentence(request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": str(problem)}, getattr(problem, "status", 422))


async def _nothing_here(request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": "there is nothing at this address"}, getattr(problem, "status_code", 404))


async def _failure(request: Request, problem: Exception) -> Response:
    log.error("%s %s failed: %r", request.method, request.url.path, problem)
    return JSONResponse({"error": "the server failed at this; its terminal says why"}, 500)


def _html(page: str) -> Response:
    """Answer with a page; its own policy is sent as a header too, which alone can forbid frames."""
    return HTMLResponse(page, headers={"Content-Security-Policy": f"{policy_of(page)}; frame-ancestors 'none'"})


async def _body(request: Request, limit: int) -> dict[str, Any]:
    """Return the JSON object of a request, unless it is larger than `limit` bytes."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLargeError(f"a request may have {limit:,} bytes, and this one has more; send less at once")
        chunks.append(chunk)
    try:
        value: dict[str, Any] = parse_json(b"".join(chunks).decode("utf-8"))
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as problem:
        raise ReviewError("a text of the request holds half a character (a lone surrogate); leave it out") from problem
    except (JsonFileError, UnicodeDecodeError, RecursionError) as problem:
        raise ReviewError(f"expected a JSON object: {problem}") from problem
    return value


def _entry(sent: Any) -> Entry:
    """Read an event of a request."""
    texts: dict[str, type] = dict.fromkeys(("key", "who", "kind", "node", "group", "value", "note"), str) | {
        "group": int
    }
    if type(sent) is not dict or not {"key", "who", "kind"} <= set(sent) <= set(texts):
        raise ReviewError(f"an event has key, who and kind, and maybe {', '.join(list(texts)[3:])}")
    given = {name: value for name, value in sent.items() if value is not None}
    for name, value in given.items():
        if type(value) is not texts[name] or (type(value) is int and not 0 < value < 2**31):
            raise ReviewError(f"{name} of an event cannot be {value!r:.60}")
    return Entry(**given | {"who": check_name(given["who"])})


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise ReviewError(f"{name} must be a whole number; got {text!r:.40}")
    return int(text)


def make_server(room: ReviewSession, host: str, port: int, names: Collection[str] = ()) -> uvicorn.Server:
    """Return a server of the review; `run(sockets=[...])` runs it until it is interrupted."""
    suggested = user_name() if host in LOCAL else ""  # in a team, everybody says who they are
    page, shown = review_page(room.folder, {"run": room.store.run[:16], "suggested": suggested})
    answers = Answers(room, page, shown)
    config = uvicorn.Config(
        make_app(answers, allowed_hosts(host, port, names)),
        lifespan="off",
        ws="none",
        log_level="critical",
        access_log=False,  # an address may hold the token
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    return RoomServer(config, answers)


class RoomServer(uvicorn.Server):
    """A server that answers waiting requests when it closes."""

    def __init__(self, config: uvicorn.Config, answers: Answers) -> None:
        super().__init__(config)
        self._answers = answers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that wait, then close."""
        self._answers.is_closing = True
        await super().shutdown(sockets)
