"""A review -> the pages and answers that browsers get, from one process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from recoslip.base.errors import RecoslipError
from recoslip.pipeline.report.html import asset, policy_of, saved_report
from recoslip.products.review.access import LOCAL, Guard, allowed_hosts
from recoslip.products.review.decision_tables import export, parse_decisions, reviewed
from recoslip.products.review.decisions import Entry, Name, ReviewError, validated
from recoslip.products.review.session import ReviewSession, user_name

# One function of small files, in this order: what a file declares, those after it use. The report calls it when drawn.
SCRIPTS = ("outbox.js", "state.js", "queue.js", "news.js", "keys.js", "view.js", "review.js")


# What the scripts say; values stand in the places that are named.
TEXTS = {
    "refused": "Not recorded: {sentence}",
    "done": "{verdict} {subject}.",
    "next": "Next: {node}.",
    "queue_done": "Nothing is left in this queue.",
    "queue_empty": "There is nothing to decide in this queue.",
    "nothing_to_undo": "There is nothing of yours to undo.",
    "undone": "Undone: {what} {subject}.",
    "told": "{who} {what} {subject}.",
    "noted": "Noted.",
    "called": "Group {number} is called {name}.",
    "ask_note": "A note on {subject}",
    "ask_name": "A name for group {number}",
    "ask_who": "Who decides? Colleagues see this name.",
    "you": "You decide as {who}",
    "no_name": "No name yet",
    "no_group": "This node is in no group.",
    "whole_group": "The next verdict is on the whole of {group}, {nodes}.",
    "on_group": "The next verdict is on the whole of {group}.",
    "node_alone": "The next verdict is on this node alone.",
    "hint_group": "The next verdict applies to the whole group",
    "hint_confirm": "It belongs to a new category",
    "hint_reject": "It belongs to a known category",
    "new_token": "The token of this review has changed. Open the address that recoslip review printed.",
    "no_answer": "The server does not answer.",
    "kept": "{decisions} kept in this browser and will be sent again.",
    "go_on": "You can go on: decisions are kept in this browser and sent later.",
    "colleagues": "Colleagues decided {times}.",
    "ranked": "The nodes are ranked anew, by what {people} decided.",
    "imported": "{decisions} imported.",
    "rules": "The verdict on a node takes precedence over the verdict on its group. If one person confirms a node and "
    "another person rejects it, the node is listed as a contradiction and counts as undecided until somebody decides "
    "again. Every decision is kept with its author and time. Undo and changes add to that record.",
    "certificate": "Verdicts on a random sample bound, with 95 % confidence, how much of the list and how much of the "
    "target is new. The bounds do not depend on the detector. The sample comes from the list and from the rest of the "
    "target. It is drawn once. Verdicts on whole groups do not count.",
}
KEYS = (
    ("c", "confirm: it belongs to a new category"),
    ("r", "reject: it belongs to a known category"),
    ("u", "unsure"),
    ("n", "write a note"),
    ("z", "undo your last decision"),
    ("j or →", "next node"),
    ("k or ←", "previous node"),
    ("g", "apply the next verdict to the whole group"),
    ("Ctrl Enter", "save a note"),
    ("?", "this help"),
)


def review_page(folder: Path, config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the report's HTML with the review and its configuration, and the ids of its nodes in their order."""
    report = saved_report(folder)
    html = report.html(scripts=[_script()], styles=[asset("products/review/review.css")], config=config)
    return html, list(map(str, report.data["nodes"]["id"]))


@cache
def _script() -> str:
    """Return the review's JavaScript."""
    return (
        '"use strict";\nwindow.recoslipReview = (api) => {\n'
        + "\n".join(asset(f"products/review/{name}") for name in SCRIPTS)
        + "};\n"
    )


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
    """The answers to the requests of a review, one function each."""

    def __init__(self, session: ReviewSession, page: str, shown: list[str]) -> None:
        """Store what is answered with.

        Args:
            session: the review.
            page: the HTML of the page.
            shown: the ids of the nodes on the page, in its order.
        """
        self.session, self._page = session, page
        position = {node: k for k, node in enumerate(session.nodes.ids)}
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
            Route("/api/final.csv", self.final),
            Route("/api/import", self.import_, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        """Answer with the page."""
        return _html(self._page)

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

    async def events(self, request: Request) -> Response:
        """Record the events of a request, all or none."""
        sent = await _body(request, EventsSent)
        recorded = await run_in_threadpool(self.session.record, sent.events)
        return JSONResponse({"events": [{"seq": event.seq, "key": event.key} for event in recorded]})

    async def queue(self, request: Request) -> Response:
        """Answer with the nodes whose verdict teaches most."""
        return JSONResponse({"nodes": await run_in_threadpool(self.session.queue, _number(request, "count", 20))})

    async def learn(self, request: Request) -> Response:
        """Learn from the verdicts and answer with the new scores."""
        await _body(request, Sent)
        await run_in_threadpool(self.session.learn)
        return await self.scores(request)

    async def scores(self, request: Request) -> Response:
        """Answer with the scores that were learned last, in the order of the page's nodes."""
        scores = self.session.scores
        values = None if scores is None else [round(value, 6) for value in scores[self._shown].tolist()]
        return JSONResponse({"rankings": self.session.rankings, "scores": values})

    async def certificate(self, request: Request) -> Response:
        """Answer with the sample, how far it is reviewed, and what it certifies."""
        return JSONResponse(await run_in_threadpool(self._certificate))

    def _certificate(self) -> dict[str, Any]:
        sample, certificate = self.session.sampled(), self.session.certificate()
        if sample is None or certificate is None:
            return {"proposed": self.session.proposed(), "nodes": None}
        return {"nodes": list(sample.nodes), "sentence": certificate.sentence, "facts": certificate.to_dict()}

    async def certificate_page(self, request: Request) -> Response:
        """Answer with the certificate as a page of its own."""
        certificate = await run_in_threadpool(self.session.certificate)
        if certificate is None:
            raise ReviewError("there is no certificate before a sample is drawn")
        return _html(certificate.html())

    async def sample(self, request: Request) -> Response:
        """Draw the sample of the certificate."""
        sent = await _body(request, SampleAsked)
        return JSONResponse({"nodes": await run_in_threadpool(self.session.draw, sent.who, sent.size)})

    async def export(self, request: Request) -> Response:
        """Answer with what is decided, as CSV."""
        table = await run_in_threadpool(lambda: export(self.session.decisions, self.session.nodes))
        return _csv(table, "decisions.csv")

    async def final(self, request: Request) -> Response:
        """Answer with the target nodes and which of them are listed after the decisions, as CSV."""
        session = self.session
        table = await run_in_threadpool(lambda: reviewed(session.decisions, session.nodes, session.scores))
        return _csv(table, "reviewed.csv")

    async def import_(self, request: Request) -> Response:
        """Record what a table says that was filled in by hand."""
        sent = await _body(request, TableSent, MAX_IMPORT)
        return JSONResponse({"recorded": await run_in_threadpool(self._import, sent.csv, sent.who)})

    def _import(self, table: str, who: str) -> int:
        return self.session.import_decisions(parse_decisions(table.encode(), self.session.nodes, who, "the table"))


def make_app(answers: Answers, hosts: Collection[str]) -> Guard:
    """Return the application behind its guard."""
    journal = answers.session.journal
    app = Starlette(
        routes=answers.routes(),
        exception_handlers={RecoslipError: _sentence, 404: _nothing_here, 405: _nothing_here, 500: _failure},
    )
    return Guard(app, token=journal.token, cookie=f"recoslip_{journal.run[:12]}", hosts=hosts)


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


def _csv(table: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(table, media_type="text/csv; charset=utf-8", headers=headers)


async def _body(request: Request, kind: type[SentKind], limit: int = MAX_BODY) -> SentKind:
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
    page, shown = review_page(
        session.folder, {"run": session.journal.run[:16], "suggested": suggested} | {"texts": TEXTS, "keys": KEYS}
    )
    answers = Answers(session, page, shown)
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
