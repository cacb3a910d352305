"""Every way to an API server, and every way to describe it wrongly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import certifi
import pytest
import yaml
from aiohttp import web
from source_servers import answering, scripted

from catalog.clocks import SystemClock
from catalog.clusters import KubernetesAccess
from sources import connecting
from sources.connecting import TokenFile, api_client
from sources.errors import SourceMisconfigured, SourceUnavailable
from sources.kubernetes import KubernetesReader

PATH = "/api/v1/namespaces/shop"


def kubeconfig(path: Path, servers: dict[str, tuple[str, str]], current: str) -> Path:
    """A kubeconfig whose contexts are `servers`: name → (url, token)."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": url}} for name, (url, _) in servers.items()],
        "users": [{"name": name, "user": {"token": token}} for name, (_, token) in servers.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in servers],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def misconfigured(**access: object) -> str:
    with pytest.raises(SourceMisconfigured) as caught:
        await api_client(KubernetesAccess.model_validate(access), user_agent="test")
    return str(caught.value)


async def test_exactly_one_way_is_needed(tmp_path: Path) -> None:
    assert "exactly one way" in await misconfigured()
    assert "exactly one way" in await misconfigured(in_cluster=True, server="https://k8s.example")
    assert "needs `token_file`" in await misconfigured(server="https://k8s.example")


async def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert str(missing) in await misconfigured(kubeconfig=missing)
    assert str(missing) in await misconfigured(server="https://k8s.example", token_file=missing)
    token = tmp_path / "token"
    token.write_text("t")
    assert str(missing) in await misconfigured(server="https://k8s.example", token_file=token, ca_file=missing)
    token.write_text("")
    assert "is empty" in await misconfigured(server="https://k8s.example", token_file=token)
    certificates = tmp_path / "ca"
    certificates.write_text("not a certificate")
    token.write_text("t")
    assert "certificates" in await misconfigured(server="https://k8s.example", token_file=token, ca_file=certificates)


async def test_a_pod_account_outside_a_pod_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "does not run in a pod" in await misconfigured(in_cluster=True)


@pytest.mark.parametrize("server", ["http://k8s.example", "http://203.0.113.9:6443", "ftp://k8s.example", "k8s.example"])
async def test_a_token_does_not_travel_in_clear_text(server: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    assert "https" in await misconfigured(server=server, token_file=token)


async def test_the_pod_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "2001:db8::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(connecting, "ACCOUNT_DIRECTORY", tmp_path)
    (tmp_path / "token").write_text("t\n")
    shutil.copy(certifi.where(), tmp_path / "ca.crt")
    client = await api_client(KubernetesAccess(in_cluster=True), user_agent="sre/1")
    assert client.configuration.host == "https://[2001:db8::1]:443"
    assert client.configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert client.configuration.api_key["BearerToken"] == "Bearer t"
    await client.close()


async def test_the_context_of_a_kubeconfig_is_honoured(tmp_path: Path) -> None:
    async with scripted(answering({"kind": "Namespace"})) as one, scripted(answering({"kind": "Namespace"})) as two:
        path = kubeconfig(tmp_path / "config", {"one": (one.url, "t1"), "two": (two.url, "t2")}, "one")
        for context, asked, token in ((None, one, "t1"), ("two", two, "t2")):
            client = await api_client(KubernetesAccess(kubeconfig=path, context=context), user_agent="sre/1")
            await KubernetesReader(client, SystemClock()).get(PATH)
            headers = {name.lower(): value for name, value in asked.requests[-1][2].items()}
            assert headers["authorization"] == f"Bearer {token}"
            assert headers["user-agent"] == "sre/1"
            await client.close()
        assert "three" in await misconfigured(kubeconfig=path, context="three")


@pytest.mark.parametrize("text", ["", "[]", "{", "kind: Config", "clusters: 5\ncontexts: 7\ncurrent-context: a"])
async def test_a_kubeconfig_that_is_none_is_said_so(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert str(path) in await misconfigured(kubeconfig=path)


async def test_F73_a_kubeconfig_is_loaded_again_when_it_changes_and_after_a_401(tmp_path: Path) -> None:
    path = tmp_path / "config"

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer stale":
            stamp = os.stat(path)
            kubeconfig(path, {"one": (server.url, "fresh")}, "one")
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # a change that the file's age does not tell
            return web.json_response({"kind": "Status", "status": "Failure"}, status=401)
        return web.json_response({"token": request.headers["Authorization"]})

    async with scripted(handle) as server:
        client = await api_client(KubernetesAccess(kubeconfig=kubeconfig(path, {"one": (server.url, "a")}, "one")), user_agent="t")
        reader = KubernetesReader(client, SystemClock())
        assert await reader.get(PATH) == {"token": "Bearer a"}
        kubeconfig(path, {"one": (server.url, "bb")}, "one")
        os.utime(path, ns=(1, 1))
        assert await reader.get(PATH) == {"token": "Bearer bb"}
        kubeconfig(path, {"one": (server.url, "stale")}, "one")
        os.utime(path, ns=(2, 2))
        assert await reader.get(PATH) == {"token": "Bearer fresh"}
        await reader.close()


async def test_a_kubeconfig_that_breaks_later_is_a_source_that_cannot_be_read(tmp_path: Path) -> None:
    async with scripted(answering({"kind": "Namespace"})) as server:
        path = kubeconfig(tmp_path / "config", {"one": (server.url, "a")}, "one")
        reader = KubernetesReader(await api_client(KubernetesAccess(kubeconfig=path), user_agent="t"), SystemClock())
        path.write_text("{")
        os.utime(path, ns=(1, 1))
        with pytest.raises(SourceUnavailable) as caught:
            await reader.get(PATH)
        assert caught.value.kind == "unauthorized"
        await reader.close()


def test_the_last_token_stays_while_the_file_is_being_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    assert token.read() == "one"
    path.unlink()
    assert token.read() == "one"
    path.write_text("")
    assert token.read() == "one"
    path.write_text("second")
    assert token.read() == "second"
