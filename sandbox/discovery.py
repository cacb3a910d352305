"""What the server says about itself: versions, groups, resources, health. Enough for dynamic clients and kubectl."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.api.reviews import REVIEWS
from sandbox.registry import Registry, Served
from sandbox.statuses import Json

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The version of the API that is emulated."""

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_PART_VERBS = ["get", "patch", "update"]
AGGREGATED = "APIGroupDiscoveryList"


def core_versions() -> Json:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    }


def groups(registry: Registry) -> Json:
    """`/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(registry, name) for name in _group_names(registry)]}


def group(registry: Registry, name: str) -> Json | None:
    """`/apis/NAME`, or None for an unknown group."""
    versions = _versions(registry, name)
    if not versions:
        return None
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": named, "preferredVersion": named[0]}


def resources(registry: Registry, group_name: str, version: str) -> Json | None:
    """`/api/v1` or `/apis/GROUP/VERSION`, or None when nothing is served there."""
    listed: list[Json] = []
    for served in _in(registry, group_name, version):
        listed.append(_resource(served))
        listed += [_part(served, *part) for part in _subresources(served)]
    listed += [
        {"name": plural, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]}
        for (review_group, plural), (kind, _) in REVIEWS.items()
        if review_group == group_name and version == "v1"
    ]
    if not listed:
        return None
    group_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def aggregated(registry: Registry, *, core: bool) -> Json:
    """`/api` or `/apis` as one APIGroupDiscoveryList."""
    names = [""] if core else _group_names(registry)
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {"version": version, "resources": _discovered(registry, name, version), "freshness": "Current"}
                for version in _versions(registry, name)
            ],
        }
        for name in names
    ]
    return {"kind": AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _in(registry: Registry, group_name: str, version: str) -> Iterable[Served]:
    return (served for served in registry.all() if served.group == group_name and served.version == version)


def _group_names(registry: Registry) -> list[str]:
    names = dict.fromkeys(served.group for served in registry.all() if served.group)
    names |= dict.fromkeys(review_group for review_group, _ in REVIEWS)
    return list(names)


def _versions(registry: Registry, name: str) -> list[str]:
    versions = dict.fromkeys(served.version for served in registry.all() if served.group == name)
    if not versions and any(review_group == name for review_group, _ in REVIEWS):
        return ["v1"]
    return list(versions)


def _singular(served: Served) -> str:
    return served.kind.singular or served.kind.kind.lower()


def _resource(served: Served) -> Json:
    kind = served.kind
    body: Json = {"name": kind.plural, "singularName": _singular(served), "namespaced": kind.namespaced, "kind": kind.kind}
    body["verbs"] = _VERBS
    if kind.short_names:
        body["shortNames"] = list(kind.short_names)
    if kind.categories:
        body["categories"] = list(kind.categories)
    return body


def _subresources(served: Served) -> list[tuple[str, str, str, list[str]]]:
    """(name, group/version, kind, verbs) of each."""
    kind = served.kind
    found: list[tuple[str, str, str, list[str]]] = []
    if kind.status:
        found.append(("status", "", kind.kind, _PART_VERBS))
    if kind.scale:
        found.append(("scale", "autoscaling/v1", "Scale", _PART_VERBS))
    if kind.key == ("", "pods"):
        found += [("eviction", "policy/v1", "Eviction", ["create"]), ("log", "", "Pod", ["get"])]
    if kind.key == ("", "serviceaccounts"):
        found.append(("token", "authentication.k8s.io/v1", "TokenRequest", ["create"]))
    return found


def _part(served: Served, name: str, api_version: str, kind: str, verbs: list[str]) -> Json:
    body: Json = {"name": f"{served.kind.plural}/{name}", "singularName": "", "namespaced": served.kind.namespaced}
    if api_version:
        body["group"], _, body["version"] = api_version.rpartition("/")
    return body | {"kind": kind, "verbs": verbs}


def _discovered(registry: Registry, group_name: str, version: str) -> list[Json]:
    found: list[Json] = []
    for served in _in(registry, group_name, version):
        kind = served.kind
        body: Json = {
            "resource": kind.plural,
            "responseKind": {"group": "", "version": "", "kind": kind.kind},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": _singular(served),
            "verbs": _VERBS,
        }
        if kind.short_names:
            body["shortNames"] = list(kind.short_names)
        if kind.categories:
            body["categories"] = list(kind.categories)
        parts = sorted(_subresources(served))
        if parts:
            body["subresources"] = [_discovered_part(*part) for part in parts]
        found.append(body)
    return found


def _discovered_part(name: str, api_version: str, kind: str, verbs: list[str]) -> Json:
    group_name, _, version = api_version.rpartition("/")
    return {"subresource": name, "responseKind": {"group": group_name, "version": version, "kind": kind}, "verbs": verbs}
