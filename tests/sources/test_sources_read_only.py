"""Nothing in `sources` can write: proven on the syntax tree, and on the wire."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from source_servers import answering, reading, scripted

import sources

PACKAGE = Path(sources.__file__).parent
REVIEWS = {
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
}
WRITING = {"post", "put", "patch", "delete", "request", "options"}
MODULES = sorted(PACKAGE.glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_calls_a_method_that_writes(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in WRITING, f"{module.name}:{node.lineno} calls .{node.func.attr}()"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_names_a_verb_but_get_and_the_two_reviews(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            allowed = {"GET", "POST"} if module.name == "kubernetes.py" else {"GET"}
            if node.value in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}:
                assert node.value in allowed, f"{module.name}:{node.lineno} says {node.value}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_imports_more_than_the_catalogue_of_ours(module: Path) -> None:
    ours = {"bot", "executor", "incidents", "ladder", "sandbox", "triage", "verifier"}
    for node in ast.walk(ast.parse(module.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & ours


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_the_reader_refuses_a_write_before_anything_is_sent(method: str, tmp_path: Path) -> None:
    async with scripted(answering({})) as server, reading(server.url, tmp_path) as reader:
        with pytest.raises(ValueError, match="would not be a read"):
            await reader._ask(method, "/api/v1/namespaces/shop/pods/web-0", {})
        assert server.requests == []


async def test_the_only_posts_on_the_wire_are_reviews_of_our_own_access(tmp_path: Path) -> None:
    bodies: list[Any] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        status = {"allowed": True} if "accessreviews" in request.path else {"userInfo": {"username": "bot"}}
        return web.json_response({"kind": "Review", "status": status}, status=201)

    async with scripted(handle) as server, reading(server.url, tmp_path) as reader:
        assert await reader.access_review("patch", "deployments", group="apps", namespace="shop", subresource="scale")
        assert await reader.who_am_i() == "bot"
        assert {(method, path) for method, path, _ in server.requests} == {("POST", path) for path in REVIEWS}
    assert bodies[0]["spec"] == {
        "resourceAttributes": {
            "verb": "patch",
            "resource": "deployments",
            "group": "apps",
            "namespace": "shop",
            "subresource": "scale",
        }
    }


async def test_a_review_that_does_not_say_allowed_is_a_denial(tmp_path: Path) -> None:
    for status in ({"allowed": False}, {}, {"allowed": "yes"}):
        async with scripted(answering({"status": status}, status=201)) as server, reading(server.url, tmp_path) as reader:
            assert await reader.access_review("get", "secrets", namespace="shop") is False
