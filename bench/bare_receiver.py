"""The least a receiver can do and still keep its word: parse, insert, commit, answer. What ingest is measured beside."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

Message = dict[str, Any]


class Bare:
    """An ASGI application over one SQLite file, with the same durability as the bot's."""

    def __init__(self, path: str) -> None:
        self._store = sqlite3.connect(path, isolation_level=None)
        self._store.execute("PRAGMA journal_mode=WAL")
        self._store.execute("PRAGMA synchronous=FULL")
        self._store.execute("CREATE TABLE alert (fingerprint TEXT, starts_at TEXT, body TEXT, UNIQUE (fingerprint, starts_at))")

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        alerts = json.loads(body)["alerts"]
        self._store.execute("BEGIN IMMEDIATE")
        self._store.executemany(
            "INSERT OR IGNORE INTO alert VALUES (?, ?, ?)",
            [(alert["fingerprint"], alert["startsAt"], json.dumps(alert)) for alert in alerts],
        )
        self._store.execute("COMMIT")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


if __name__ == "__main__":
    uvicorn.run(Bare(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), lifespan="off", access_log=False, log_level="warning")
