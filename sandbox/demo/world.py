"""The demo's cluster: three opted-in namespaces with services under load and one that did not opt in."""

from __future__ import annotations

from typing import Any

from catalog.marks import OPT_IN_LABEL, OPT_IN_VALUE

SHOP = (
    "cart", "catalogue", "search", "recommend", "wishlist", "reviews", "prices", "stock", "images", "sessions", "accounts",
    "loyalty", "coupons", "gifts", "banners", "feeds", "sitemap", "profiles", "addresses", "newsletter",
)  # fmt: skip
UNTOUCHED = ("storefront", "suggest", "outlet", "preview", "kiosk", "bazaar", "arcade")
"""Services of `shop` that the history leaves alone: nothing was done to them lately that the repetition rule would count."""
ORDERS = (
    "checkout", "basket", "payments", "invoicing", "shipping", "tracking", "returns", "refunds", "tax", "fraud", "ledger",
    "fulfilment",
)  # fmt: skip
BILLING = ("statements",)
LEGACY = ("mailer",)
DATABASE = "orders-db"

USUAL_RPS = 60.0
CAPACITY_RPS = 100.0
MEMORY_LIMIT = "192Mi"

Json = dict[str, Any]


def world() -> list[Json]:
    """Every object, in the order in which it is created."""
    objects = [_namespace(name, opted_in=True) for name in ("shop", "orders", "billing")]
    objects.append(_namespace("legacy", opted_in=False))
    for name in (*SHOP, *UNTOUCHED):
        objects += _service("shop", name, replicas=3)
    objects += _service("orders", DATABASE, replicas=1, image="sandbox/database:1", annotations={"max-connections": "20"}, rps=0)
    for name in ORDERS:
        pooled = {"pool": DATABASE, "connections": "8"} if name == "checkout" else {}
        objects += _service("orders", name, replicas=2, annotations=pooled)
    for name in BILLING:
        objects += _service("billing", name, replicas=3)
    for name in LEGACY:
        objects += _service("legacy", name, replicas=3)
    return objects


def _namespace(name: str, *, opted_in: bool) -> Json:
    labels = {OPT_IN_LABEL: OPT_IN_VALUE} if opted_in else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _service(
    namespace: str,
    name: str,
    *,
    replicas: int,
    image: str = "sandbox/web:1",
    annotations: dict[str, str] | None = None,
    rps: float = USUAL_RPS,
) -> list[Json]:
    labels = {"app": name}
    program = {"sandbox.dev/capacity-rps": f"{CAPACITY_RPS:g}"} | {
        f"sandbox.dev/{key}": value for key, value in (annotations or {}).items()
    }
    container = {
        "name": "app",
        "image": image,
        "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"cpu": "500m", "memory": MEMORY_LIMIT}, "requests": {"cpu": "100m", "memory": "64Mi"}},
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels,
                "annotations": {"sandbox.dev/offered-rps": f"{rps:g}"} if rps else {},
            },
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": program},
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]
