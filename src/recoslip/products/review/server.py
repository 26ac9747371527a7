"""A review -> the pages and answers that browsers get, from one process."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import pydantic
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from recoslip.base.errors import RecoslipError
from recoslip.pipeline.report.html import asset, policy_of, saved_report
from recoslip.products.review.access import LOCAL, Guard, allowed_hosts
from recoslip.products.review.decision_tables import export, parse_decisions
from recoslip.products.review.decisions import Entry, Name, ReviewError, validated
from recoslip.products.review.session import QUEUE, ReviewSession, user_name

# One function of small files, in this order: what a file declares, those after it use. The report calls it when drawn.
SCRIPTS = ("texts.js", "outbox.js", "state.js", "queue.js", "news.js", "keys.js", "view.js", "review.js")


@cache
def _script() -> str:
    """Return the review's JavaScript."""
    parts = "\n".join(asset(f"products/review/{name}") for name in SCRIPTS)
    return f'"use strict";\nwindow.recoslipReview = (api) => {{\n{parts}}};\n'


log = logging.getLogger("recoslip")

MAX_BODY, MAX_IMPORT = 2**16, 2**23  # bytes
MAX_EVENTS = 100  # in one request
LONGEST_WAIT = 20.0  # seconds that a request for news is kept waiting
LOOK_EVERY = 0.3  # seconds: other processes write into the journal too


class Sent(pydantic.BaseModel):
    """What a request sends."""

    model_config = pydantic.ConfigDict(strict=True)


SentKind = TypeVar("SentKind", bound=Sent)


class EventsSent(Sent):
    """Events, all of which are recorded, or none."""

    events: Annotated[list[Entry], pydantic.Field(min_length=1, max_length=MAX_EVENTS)]


class SampleAsked(Sent):
    """Who draws a sample, and of how many nodes; by default of as many as proposed."""

    who: Name
    size: Annotated[int, pydantic.Field(gt=0, lt=2**31)] | None = None


class TableSent(Sent):
    """Who imports a table of decisions."""

    who: Name
    csv: str


class TooLargeError(RecoslipError):
    """A request has a longer body than is allowed."""

    status = 413


class Answers:
    """The answers to the requests of a review."""

    def __init__(self, session: ReviewSession, config: Mapping[str, Any]) -> None:
        """Make the page.

        Args:
            session: the review.
            config: JSON values for the page's scripts.
        """
        report = saved_report(session.folder)
        styles = [asset("products/review/review.css")]
        self.session, self._page = session, report.html(scripts=[_script()], styles=styles, config=config)
        position = {node: k for k, node in enumerate(session.nodes.ids)}
        shown = list(map(str, report.data["nodes"]["id"]))
        if unknown := [node for node in shown if node not in position]:
            raise ReviewError(f"report.json names {unknown[0]!r:.60}, which the scores do not have; run detect again")
        self._shown = [position[node] for node in shown]
        self.is_closing = False  # requests that wait for news are answered then

    def routes(self) -> list[Route]:
        """Return the addresses and what answers them; functions that are not asynchronous run in threads."""
        session = self.session
        return [
            Route("/", lambda request: _html(self._page)),
            Route("/certificate.html", self.certificate_page),
            Route("/api/state", self.state),
            _get("/api/queue", lambda request: {"nodes": session.queue(_number(request, "count", QUEUE))}),
            _get("/api/scores", lambda request: self.scores()),
            _get("/api/certificate", lambda request: self.certificate()),
            Route("/api/export.csv", lambda request: _csv(export(session.decisions, session.nodes), "decisions.csv")),
            Route("/api/final.csv", lambda request: _csv(session.final(), "reviewed.csv")),
            _post("/api/events", EventsSent, self.events),
            _post("/api/learn", Sent, self.learn),
            _post("/api/sample", SampleAsked, lambda sent: {"nodes": session.draw(sent.who, sent.size)}),
            _post("/api/import", TableSent, self.import_, MAX_IMPORT),
        ]

    async def state(self, request: Request) -> Response:
        """Answer with what is new since a number; with `wait`, as soon as there is something."""
        since, wait = _number(request, "since", 0), min(_number(request, "wait", 0), LONGEST_WAIT)
        rankings = _number(request, "rankings", self.session.rankings)
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while loop.time() < end and self.session.rankings == rankings and not self.is_closing:
            if await run_in_threadpool(self.session.journal.last) > since or await request.is_disconnected():
                break
            await asyncio.sleep(LOOK_EVERY)
        return JSONResponse(await run_in_threadpool(self.session.changes, since))

    def events(self, sent: EventsSent) -> dict[str, Any]:
        """Record events, all or none."""
        return {"events": [{"seq": event.seq, "key": event.key} for event in self.session.record(sent.events)]}

    def learn(self, sent: Sent) -> dict[str, Any]:
        """Learn from the verdicts, and return the new scores."""
        self.session.learn()
        return self.scores()

    def scores(self) -> dict[str, Any]:
        """Return the scores that were learned last, in the order of the page's nodes, and what they moved."""
        scores, rankings = self.session.scores, self.session.rankings
        values = None if scores is None else [round(value, 6) for value in scores[self._shown].tolist()]
        return {"rankings": rankings, "scores": values, "moved": self.session.moved}

    def certificate(self) -> dict[str, Any]:
        """Return the sample, and what it certifies."""
        found = self.session.certificate()
        if found is None:
            return {"proposed": self.session.proposed(), "nodes": None}
        return {"nodes": list(found.sample.nodes), "sentence": found.sentence}

    def certificate_page(self, request: Request) -> Response:
        """Answer with the certificate as a page of its own."""
        found = self.session.certificate()
        if found is None:
            raise ReviewError("there is no certificate before a sample is drawn")
        return _html(found.html())

    def import_(self, sent: TableSent) -> dict[str, Any]:
        """Record what a table says that was filled in by hand."""
        entries = parse_decisions(sent.csv.encode(), self.session.nodes, sent.who, "the table")
        return {"recorded": self.session.import_decisions(entries)}


def _get(path: str, answer: Callable[[Request], Any]) -> Route:
    """Return a route that answers with JSON."""
    return Route(path, lambda request: JSONResponse(answer(request)))


def _post(path: str, kind: type[SentKind], answer: Callable[[SentKind], Any], limit: int = MAX_BODY) -> Route:
    """Return a route that answers with JSON what is sent; a body has at most `limit` bytes."""

    async def endpoint(request: Request) -> Response:
        sent = await _body(request, kind, limit)
        return JSONResponse(await run_in_threadpool(answer, sent))

    return Route(path, endpoint, methods=["POST"])


def make_app(answers: Answers, hosts: Collection[str]) -> Guard:
    """Return the application behind its guard."""
    journal = answers.session.journal
    app = Starlette(
        routes=answers.routes(),
        exception_handlers={RecoslipError: _sentence, HTTPException: _sentence, 500: _failure},
    )
    return Guard(app, token=journal.token, cookie=f"recoslip_{journal.run[:12]}", hosts=hosts)


async def _sentence(request: Request, problem: Exception) -> Response:
    """Say what is wrong with a request, or that nothing is at its address."""
    if isinstance(problem, HTTPException):
        return JSONResponse({"error": "there is nothing at this address"}, problem.status_code)
    return JSONResponse({"error": str(problem)}, getattr(problem, "status", 422))


async def _failure(request: Request, problem: Exception) -> Response:
    log.error("%s %s failed: %r", request.method, request.url.path, problem)
    return JSONResponse({"error": "the server failed at this; its terminal says why"}, 500)


def _html(page: str) -> Response:
    """Answer with a page; its own policy is sent as a header too, which alone can forbid frames."""
    return HTMLResponse(page, headers={"Content-Security-Policy": f"{policy_of(page)}; frame-ancestors 'none'"})


def _csv(table: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(table, media_type="text/csv; charset=utf-8", headers=headers)


async def _body(request: Request, kind: type[SentKind], limit: int) -> SentKind:
    """Return the JSON object of a request, unless it is larger than `limit` bytes."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLargeError(f"a request may have {limit:,} bytes, and this one has more; send less at once")
        chunks.append(chunk)
    return validated(kind, b"".join(chunks))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise ReviewError(f"{name} must be a whole number; got {text!r:.40}")
    return int(text)


def make_server(session: ReviewSession, host: str, port: int, names: Collection[str] = ()) -> uvicorn.Server:
    """Return a server of the review; `run(sockets=[...])` runs it until it is interrupted."""
    suggested = user_name() if host in LOCAL else ""  # in a team, everybody says who they are
    answers = Answers(session, {"run": session.journal.run[:16], "suggested": suggested})
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
    return ReviewServer(config, answers)


class ReviewServer(uvicorn.Server):
    """A server that answers waiting requests when it closes."""

    def __init__(self, config: uvicorn.Config, answers: Answers) -> None:
        super().__init__(config)
        self._answers = answers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that wait, then close."""
        self._answers.is_closing = True
        await super().shutdown(sockets)
