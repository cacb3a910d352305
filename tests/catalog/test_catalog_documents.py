"""Stored documents mean the same next year: one canonical form, golden version-1 documents, a chain that shows tampering."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import ValidationError

from catalog.actions import Scale
from catalog.cases import Case
from catalog.decisions import Decision
from catalog.diagnoses import Diagnosis
from catalog.documents import StoredDocument, canonical, digest, instant_text
from catalog.episodes import Episode
from catalog.events import GENESIS, Event, EventKind, event_hash, verify_chain
from catalog.evidence import Evidence
from catalog.ids import is_id, new_id
from catalog.names import is_dns_label, is_dns_subdomain
from catalog.orders import Order
from catalog.outcomes import Outcome

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
STORED = (Case, Decision, Diagnosis, Episode, Evidence, Order, Outcome)
NOW = datetime(2026, 3, 4, 10, 0, 0, 123, tzinfo=UTC)


def test_every_stored_document_of_the_catalogue_has_a_golden_file() -> None:
    kinds = {kind for kind in StoredDocument.__subclasses__() if kind.__module__.startswith("catalog.")}
    assert kinds == set(STORED)


@pytest.mark.parametrize("kind", STORED)
def test_a_golden_version_1_document_is_read_and_written_back_byte_for_byte(kind: type[StoredDocument]) -> None:
    golden = (GOLDEN / f"{kind.__name__}.v1.json").read_bytes().strip()
    document = kind.model_validate_json(golden)
    assert document.schema_version == 1
    assert canonical(document) == golden


def test_unknown_keys_and_changes_are_refused() -> None:
    with pytest.raises(ValidationError):
        Scale.model_validate({"action": "scale", "from_replicas": 1, "to_replicas": 2, "force": True})
    with pytest.raises(ValidationError):
        Scale(from_replicas=1, to_replicas=2).to_replicas = 3  # type: ignore[misc]


def test_canonical_form_does_not_depend_on_order_or_zone() -> None:
    assert canonical({"b": 1, "a": "ä"}) == '{"a":"ä","b":1}'.encode()
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))
    assert instant_text(elsewhere) == instant_text(NOW) == "2026-03-04T10:00:00.000123Z"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_have_no_canonical_form(value: float) -> None:
    with pytest.raises(ValueError):
        canonical({"value": value})


def chain(count: int = 3) -> list[Event]:
    events: list[Event] = []
    previous = GENESIS
    for seq in range(1, count + 1):
        payload = {"n": seq}
        hashed = event_hash("incident", seq, EventKind.OPENED, NOW, "bot", digest(payload), previous)
        events.append(
            Event(
                incident_id="incident",
                seq=seq,
                kind=EventKind.OPENED,
                at=NOW,
                recorded_at=NOW,
                actor="bot",
                payload=payload,
                payload_digest=digest(payload),
                previous=previous,
                hash=hashed,
            )
        )
        previous = hashed
    return events


def test_a_chain_holds_also_when_payloads_are_erased() -> None:
    assert verify_chain(chain()) is None
    assert verify_chain([event.model_copy(update={"payload": None}) for event in chain()]) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"payload": {"n": 9}}, "payload of event 2"),
        ({"actor": "ana"}, "event 2 was changed"),
        ({"previous": "x" * 64}, "does not follow"),
    ],
)
def test_a_changed_event_is_found(change: dict[str, object], said: str) -> None:
    events = chain()
    events[1] = events[1].model_copy(update=change)
    assert said in (verify_chain(events) or "")


def test_a_removed_event_is_found() -> None:
    events = chain()
    del events[1]
    assert verify_chain(events) == "event 2 is missing (found 3)"


def test_ids_sort_by_time() -> None:
    first, second = new_id(NOW), new_id(NOW + timedelta(milliseconds=2))
    assert is_id(first)
    assert first < second
    assert not is_id("not-an-id")


@pytest.mark.parametrize("name", ["a", "web-1", "a" * 63])
def test_labels_of_dns_1123(name: str) -> None:
    assert is_dns_label(name)
    assert is_dns_subdomain(f"{name}.example")


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a_b", "a" * 64, "a b", "a\n", "--server=x", "kube\u200b-system", "ａ", "a..b", ".a"]
)
def test_h06_h18_other_names_are_not_names(name: str) -> None:
    assert not is_dns_label(name)
    assert name == "a" * 64 or not is_dns_subdomain(name)
