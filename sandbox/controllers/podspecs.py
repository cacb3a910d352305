"""Pods as controllers make them from a template; the API server's defaults come in when they are stored."""

from __future__ import annotations

from typing import Any

from sandbox.shelves import copied

Json = dict[str, Any]


def pod_of(owner: Json, template: Json) -> Json:
    """A new pod for a controller, named by generateName, owned by it."""
    metadata = owner["metadata"]
    body: Json = {
        "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
        "spec": copied(template["spec"]),
    }
    for field in ("labels", "annotations", "finalizers"):
        value = (template.get("metadata") or {}).get(field)
        if value:
            body["metadata"][field] = copied(value)
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return body
