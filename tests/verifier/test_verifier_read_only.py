"""No write verb can be reached from triage or the verifier: proven on the syntax trees of everything they import."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("triage", "verifier")
ALLOWED_ROOMS = {"triage": {"catalog", "sources", "triage"}, "verifier": {"catalog", "sources", "verifier"}}
OURS = {"bot", "catalog", "executor", "incidents", "ladder", "sandbox", "sources", "triage", "verifier"}
WRITING_CALL = re.compile(
    r"(post|put|patch|delete|request|options|evict|create_namespaced\w*|patch_namespaced\w*|replace_namespaced\w*|delete_namespaced\w*"
    r"|write_text|write_bytes|unlink|mkdir|system|popen|Popen|check_call|check_output|create_subprocess\w*)"
)
WRITING_WORD = {"PUT", "PATCH", "DELETE"}
FORBIDDEN_IMPORTS = {
    "subprocess",
    "socket",
    "requests",
    "httpx",
    "kubernetes",
    "aiohttp",
    "sqlalchemy",
    "sqlmodel",
    "shutil",
    "pickle",
}


def complaints(source: str, room: str) -> list[str]:
    """What in this module could write, or reaches outside its room's doors."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if WRITING_CALL.fullmatch(name):
                found.append(f"line {node.lineno} calls .{name}()")
            case ast.Call(func=ast.Name(id="open" | "exec" | "eval" | "__import__" as name)):
                found.append(f"line {node.lineno} calls {name}()")
            case ast.Constant(value=str(word)) if word in WRITING_WORD:
                found.append(f"line {node.lineno} says {word}")
            case ast.Import(names=names):
                found += _imports([alias.name for alias in names], room)
            case ast.ImportFrom(module=str(module)):
                found += _imports([module], room)
    return found


def _imports(names: list[str], room: str) -> list[str]:
    tops = {name.split(".")[0] for name in names}
    strangers = (tops & OURS - ALLOWED_ROOMS[room]) | (tops & FORBIDDEN_IMPORTS)
    return [f"imports {name}" for name in sorted(strangers)]


MODULES = sorted((room, path) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize(("room", "path"), MODULES, ids=lambda value: value if isinstance(value, str) else value.stem)
def test_no_module_of_the_judging_rooms_can_write(room: str, path: Path) -> None:
    assert complaints(path.read_text(), room) == []


def test_everything_they_reach_in_sources_reads_only() -> None:
    """The sources that they import, directly or not, call no writing method; what POSTs are left are reviews of our own access."""
    reached, waiting = (
        set(),
        {("sources", "endpoints"), ("sources", "workloads"), ("sources", "telemetry"), ("sources", "condensing")},
    )
    while waiting:
        room, name = waiting.pop()
        reached.add((room, name))
        tree = ast.parse((ROOT / room / f"{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        waiting |= {("sources", module.split(".")[1]) for module in imported if module.startswith("sources.")} - reached
    assert len(reached) > 10
    for room, name in sorted(reached):
        for node in ast.walk(ast.parse((ROOT / room / f"{name}.py").read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in {"post", "put", "patch", "delete"}, f"{name}:{node.lineno}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in WRITING_WORD, f"{name}:{node.lineno}"


@pytest.mark.parametrize(
    "planted",
    [
        "api.patch('/apis/apps/v1', body)",
        "session.post(url)",
        "client.delete_namespaced_pod('x', 'y')",
        "method = 'PATCH'",
        "import subprocess",
        "from executor.effects import apply",
        "from incidents.mint import mint",
        "open('x', 'w')",
    ],
)
def test_the_proof_sees_a_planted_write(planted: str) -> None:
    for room in ROOMS:
        assert complaints(planted, room)
