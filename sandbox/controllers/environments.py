"""What a container is given from outside when it starts: environment, mounted ConfigMaps, Secrets, and what of it is missing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.controllers.containers import Container
from sandbox.controllers.facts import annotations_of
from sandbox.kinds import CONFIG_MAPS, SECRETS, Kind
from sandbox.store import Store
from sandbox.workloads import ENV_PREFIX, Program, annotated_settings, program_of, settings_in

Json = dict[str, Any]

_SOURCES: Mapping[str, tuple[Kind, str, str]] = {
    "configMap": (CONFIG_MAPS, "configmap", "ConfigMap"),
    "secret": (SECRETS, "secret", "Secret"),
}


class Environments:
    """Resolves references of container specs against the store, as of now."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def missing(self, pod: Json, container: Container) -> str:
        """Why the container cannot be created (`configmap "x" not found`), or ""."""
        namespace = pod["metadata"]["namespace"]
        for source, reference, key in _references(container.spec):
            kind, word, title = _SOURCES[source]
            if reference.get("optional"):
                continue
            found = self._store.find(kind, namespace, reference["name"])
            if found is None:
                return f'{word} "{reference["name"]}" not found'
            if key and key not in _data(found):
                return f"couldn't find key {key} in {title} {namespace}/{reference['name']}"
        return ""

    def program(self, pod: Json, container: Container) -> Program:
        """The program that the container runs if it starts now. Malformed settings make one that says so and exits."""
        settings = [
            annotated_settings(annotations_of(pod), container.name, main=container.main),
            settings_in(self._environment(pod, container), prefix=ENV_PREFIX),
            self._mounted(pod, container),
        ]
        try:
            return program_of(container.image, container.spec, settings)
        except ValueError as problem:
            return Program(exit_after_s=0.1, exit_code=2, last_words=f"cannot read configuration: {problem}")

    def secret_version(self, namespace: str, name: str) -> str:
        """The resourceVersion of a Secret, "" where there is none."""
        found = self._store.find(SECRETS, namespace, name) if name else None
        return "" if found is None else str(found["metadata"]["resourceVersion"])

    def _environment(self, pod: Json, container: Container) -> dict[str, str]:
        namespace = pod["metadata"]["namespace"]
        values: dict[str, str] = {}
        for item in container.spec.get("envFrom") or ():
            for field, source in (("configMapRef", "configMap"), ("secretRef", "secret")):
                if field in item:
                    found = self._store.find(_SOURCES[source][0], namespace, item[field]["name"])
                    values |= {item.get("prefix", "") + key: text for key, text in _data(found).items()}
        for item in container.spec.get("env") or ():
            if "value" in item:
                values[item["name"]] = item["value"]
            for field, source in (("configMapKeyRef", "configMap"), ("secretKeyRef", "secret")):
                reference = (item.get("valueFrom") or {}).get(field)
                if reference:
                    found = self._store.find(_SOURCES[source][0], namespace, reference["name"])
                    values[item["name"]] = _data(found).get(reference["key"], "")
        return values

    def _mounted(self, pod: Json, container: Container) -> dict[str, str]:
        mounts = {item["name"] for item in container.spec.get("volumeMounts") or ()}
        values: dict[str, str] = {}
        for volume in pod["spec"].get("volumes") or ():
            if volume["name"] in mounts and "configMap" in volume:
                found = self._store.find(CONFIG_MAPS, pod["metadata"]["namespace"], volume["configMap"].get("name", ""))
                values |= settings_in(_data(found))
        return values


def missing_volume(store: Store, pod: Json) -> tuple[str, str] | None:
    """(volume, why) of the first volume that cannot be mounted, or None."""
    namespace = pod["metadata"]["namespace"]
    for volume in pod["spec"].get("volumes") or ():
        for field, name_key, source in (("configMap", "name", "configMap"), ("secret", "secretName", "secret")):
            if field not in volume or volume[field].get("optional"):
                continue
            kind, word, _ = _SOURCES[source]
            name = volume[field].get(name_key, "")
            if store.find(kind, namespace, name) is None:
                return volume["name"], f'{word} "{name}" not found'
    return None


def _references(spec: Mapping[str, Any]) -> Iterator[tuple[str, Json, str]]:
    for item in spec.get("envFrom") or ():
        for field, source in (("configMapRef", "configMap"), ("secretRef", "secret")):
            if field in item:
                yield source, item[field], ""
    for item in spec.get("env") or ():
        for field, source in (("configMapKeyRef", "configMap"), ("secretKeyRef", "secret")):
            reference = (item.get("valueFrom") or {}).get(field)
            if reference:
                yield source, reference, reference["key"]


def _data(found: Json | None) -> dict[str, str]:
    """The data of a ConfigMap or Secret as text; what is not text is left out."""
    if found is None:
        return {}
    if found["kind"] != "Secret":
        return dict(found.get("data") or {})
    values = dict(found.get("stringData") or {})
    for key, encoded in (found.get("data") or {}).items():
        try:
            values[key] = base64.b64decode(encoded).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return values
