"""`sre`: an operator's client of the API. The words after it are one line of the same grammar that chat speaks.

    sre status
    sre approve 42
    sre promote shop restart_workload R5 "50 of 50 right"

Needs the bot's address in SRE_URL and a person's token in SRE_TOKEN, or in the file that SRE_TOKEN_FILE names.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 refused or not found, 2 usage or no way to reach the bot."""
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        words = ["help"]
    sys.exit(run(words, dict(os.environ)))


def run(words: list[str], environment: dict[str, str]) -> int:
    """Send one line, print the answer."""
    import httpx

    url = environment.get("SRE_URL", "http://127.0.0.1:8080").rstrip("/")
    token = _token(environment)
    if token is None:
        return _complain("no token: set SRE_TOKEN or SRE_TOKEN_FILE; an owner makes one with: sre-bot person token NAME")
    request = {"line": " ".join(words), "key": os.urandom(16).hex()}
    try:
        answer = httpx.post(f"{url}/v1/commands", json=request, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    except httpx.HTTPError as error:
        return _complain(f"the bot at {url} does not answer: {error}. Is SRE_URL right?")
    except httpx.InvalidURL:
        return _complain(f"SRE_URL {url!r} is not a URL")
    return _print(answer)


def _print(answer: object) -> int:
    import httpx

    assert isinstance(answer, httpx.Response)
    try:
        body = answer.json()
    except ValueError:
        return _complain(f"the bot answered {answer.status_code} and no JSON; is SRE_URL the bot's address?")
    if "text" not in body:
        return _complain(str(body.get("detail", f"the bot answered {answer.status_code}")))
    print(body["text"], file=sys.stdout if body["ok"] else sys.stderr)
    return 0 if body["ok"] else 1


def _token(environment: dict[str, str]) -> str | None:
    if environment.get("SRE_TOKEN"):
        return environment["SRE_TOKEN"]
    path = environment.get("SRE_TOKEN_FILE")
    if path and Path(path).is_file():
        return Path(path).read_text().strip()
    return None


def _complain(sentence: str) -> int:
    print(f"sre: {sentence}", file=sys.stderr)
    return 2
