"""The one dialect this system speaks, Alertmanager's webhook version 4, and the sentences for everybody else's.

Unknown fields are ignored and missing ones tolerated, as Alertmanager's own versions differ in both. What the group says of
itself (its status, its labels) is not used: each alert speaks for itself. A body of another product is refused by name, because
guessing at its meaning would invent alerts.

Source: prometheus/alertmanager, notify/webhook and template (Data, Alert).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

BODY_LIMIT = 16 * 1024 * 1024
"""Bytes of one webhook. Whoever reads the body must stop reading at this size."""


class WebhookRefused(Exception):
    """A webhook that was not taken. `status` is the HTTP status that says so; the message is for who sent it."""

    status = 400
    result = "refused"


class BodyMalformed(WebhookRefused):
    """Not JSON, or not UTF-8. Sending the same again is useless."""

    status = 400
    result = "malformed"


class BodyTooLarge(WebhookRefused):
    """Over the limit. Send smaller groups."""

    status = 413
    result = "too_large"


class EnvelopeForeign(WebhookRefused):
    """JSON, but not an Alertmanager version 4 webhook. `vendor` is whose it is."""

    status = 422
    result = "foreign"

    def __init__(self, vendor: str, sentence: str) -> None:
        super().__init__(sentence)
        self.vendor = vendor


def _absent_when_zero(value: Any) -> Any:
    """Go writes the zero time for "not set"."""
    return None if isinstance(value, str) and value.startswith("0001-01-01T") else value


def _empty_when_null(value: Any) -> Any:
    return {} if value is None else value


Pairs = Annotated[dict[str, str], BeforeValidator(_empty_when_null)]


class WireAlert(BaseModel):
    """One alert of a webhook, as sent."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Literal["firing", "resolved"]
    labels: Pairs = {}
    annotations: Pairs = {}
    starts_at: AwareDatetime = Field(alias="startsAt")
    ends_at: Annotated[AwareDatetime | None, BeforeValidator(_absent_when_zero)] = Field(default=None, alias="endsAt")
    generator_url: str = Field(default="", alias="generatorURL")
    fingerprint: str = ""


class Envelope(BaseModel):
    """A webhook, as sent."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str = "4"
    alerts: tuple[WireAlert, ...]
    truncated_alerts: int = Field(default=0, alias="truncatedAlerts", ge=0)
    org_id: Any = Field(default=None, alias="orgId")


_FIRST_YEAR = datetime(2, 1, 1, tzinfo=UTC)


def read_envelope(body: bytes) -> Envelope:
    """An Alertmanager version 4 webhook.

    Raises:
        BodyTooLarge, BodyMalformed, EnvelopeForeign: it is none; each with a sentence for who sent it.
    """
    if len(body) > BODY_LIMIT:
        raise BodyTooLarge(f"the body has more than {BODY_LIMIT >> 20} MiB; lower max_alerts of the receiver or group more finely")
    try:
        envelope = Envelope.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(body, error) from error
    if envelope.version != "4" or envelope.org_id is not None:
        raise _foreign(json.loads(body))
    if any(alert.starts_at < _FIRST_YEAR for alert in envelope.alerts):
        raise EnvelopeForeign(
            "unknown", "an alert without startsAt cannot be told from its next firing; Alertmanager always sends it"
        )
    return envelope


def _refusal(body: bytes, error: ValidationError) -> WebhookRefused:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return BodyMalformed(_malformed(body, str(first["ctx"]["error"])))
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return BodyMalformed(_malformed(body, "it cannot be read"))
    refusal = _foreign(data)
    if refusal.vendor == "unknown" and isinstance(data, dict) and isinstance(data.get("alerts"), list):
        place = ".".join(str(part) for part in first["loc"])
        refusal = EnvelopeForeign("unknown", f"not an Alertmanager version 4 webhook: {place}: {first['msg'].lower()}")
    return refusal


def _malformed(body: bytes, reason: str) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8: byte 0x{body[error.start]:02x} at position {error.start}"
    return f"the body is not JSON: {reason}"


def _foreign(data: Any) -> EnvelopeForeign:
    vendor = _vendor(data)
    return EnvelopeForeign(vendor, _SENTENCES[vendor])


def _vendor(data: Any) -> str:
    if not isinstance(data, dict):
        return "unknown"
    if "orgId" in data or (data.get("version") == "1" and "alerts" in data):
        return "grafana"
    if "specversion" in data:
        return "cloudevents"
    if isinstance(data.get("event"), dict) and "event_type" in data["event"]:
        return "pagerduty"
    if isinstance(data.get("action"), str) and isinstance(data.get("alert"), dict):
        return "opsgenie"
    return "unknown"


_HERE = "only Alertmanager webhooks (version 4) are taken here"

_SENTENCES = {
    "grafana": f"this is a Grafana alerting webhook; {_HERE}: let Grafana send to an Alertmanager and point its receiver here",
    "pagerduty": f"this is a PagerDuty webhook; {_HERE}: route the alert to this receiver in Alertmanager, beside PagerDuty",
    "opsgenie": f"this is an Opsgenie webhook; {_HERE}: route the alert to this receiver in Alertmanager, beside Opsgenie",
    "cloudevents": f"this is a CloudEvents envelope; {_HERE}: send the Alertmanager body itself",
    "unknown": f"this is not an Alertmanager webhook; {_HERE}: remove the receiver's custom payload template",
}

VENDORS = tuple(_SENTENCES)
