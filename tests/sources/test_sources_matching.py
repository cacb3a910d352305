"""Which series speak of the target, before and after its pods are replaced."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_servers import target

from catalog.targets import TargetKind
from sources.matching import keep, pod_name_pattern, series_matchers

ALPHANUM = "abcdefghijklmnopqrstuvwxyz0123456789"
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
hashes = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=6, max_size=10)
randoms = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=5, max_size=5)


def generated(base: str, random: str) -> str:
    """A name as Kubernetes generates it: the base cut to 58 characters, then five random ones."""
    return base[:58] + random


@given(names, hashes, randoms)
def test_F23_the_pattern_fits_every_pod_that_the_deployment_can_ever_make(name: str, template: str, random: str) -> None:
    pattern = pod_name_pattern(target(name=name))
    assert pattern is not None
    assert re.fullmatch(pattern, generated(f"{name}-{template}-", random))


@given(names, randoms)
def test_the_pattern_of_a_daemon_set(name: str, random: str) -> None:
    pattern = pod_name_pattern(target(TargetKind.DAEMONSET, name))
    assert pattern is not None
    assert re.fullmatch(pattern, generated(f"{name}-", random))


def test_the_pattern_does_not_fit_a_neighbour() -> None:
    pattern = pod_name_pattern(target(name="checkout"))
    assert pattern == "^checkout-[a-z0-9]+-[a-z0-9]{5}$"
    for other in (
        "checkout-api-7d9f8c6b5d-abcde",
        "checkout",
        "checkout-0",
        "my-checkout-7d9f8c6b5d-abcde",
        "checkout-7d9f8c6b5d-abcdef",
    ):
        assert not re.fullmatch(pattern, other)
    assert not re.fullmatch(str(pod_name_pattern(target(name="a.b"))), "axb-7d9f8c6b5d-abcde"), "a dot is a dot"
    assert pod_name_pattern(target(TargetKind.STATEFULSET, "db")) == "^db-[0-9]+$"
    assert pod_name_pattern(target(TargetKind.NODE, "node1", "")) is None


def kept(labels: dict[str, str], alert: dict[str, str], kind: TargetKind = TargetKind.DEPLOYMENT, name: str = "checkout") -> bool:
    namespace = "" if kind is TargetKind.NODE else "shop"
    return keep(labels, series_matchers(target(kind, name, namespace), alert))


POD_ALERT = {"alertname": "CrashLoop", "namespace": "shop", "pod": "checkout-7d9f8c6b5d-abcde", "container": "app", "job": "ksm"}


def test_F23_the_series_of_a_replaced_pod_still_counts() -> None:
    assert kept({"namespace": "shop", "pod": "checkout-5c9d8b7f6d-zzzzz"}, POD_ALERT)
    assert not kept({"namespace": "shop", "pod": "cart-5c9d8b7f6d-zzzzz"}, POD_ALERT)
    assert not kept({"namespace": "other", "pod": "checkout-5c9d8b7f6d-zzzzz"}, POD_ALERT)


def test_a_label_that_the_series_does_not_have_is_ignored() -> None:
    assert kept({}, POD_ALERT)
    assert kept({"code": "500"}, POD_ALERT)
    assert kept({"deployment": "checkout"}, POD_ALERT)
    assert not kept({"deployment": "cart"}, POD_ALERT)


def test_the_victims_labels_are_meant_where_an_exporter_has_its_own() -> None:
    series = {
        "namespace": "monitoring",
        "pod": "ksm-7d9f8c6b5d-abcde",
        "exported_namespace": "shop",
        "exported_pod": "checkout-7d9f8c6b5d-zzzzz",
    }
    assert kept(series, {"exported_namespace": "shop", "exported_pod": "checkout-7d9f8c6b5d-abcde", "namespace": "monitoring"})
    assert kept(series, POD_ALERT)
    assert not kept(series | {"exported_namespace": "other"}, POD_ALERT)


def test_an_exporters_own_pod_makes_no_matcher() -> None:
    alert = {"deployment": "checkout", "namespace": "shop", "pod": "ksm-7d9f8c6b5d-abcde"}
    assert kept({"deployment": "checkout", "namespace": "shop"}, alert)
    assert kept({"pod_name": "ksm-0", "deployment": "checkout"}, {"pod_name": "ksm-0", "namespace": "shop"})
    matchers = {one.label: one for one in series_matchers(target(name="checkout"), alert)}
    assert matchers["pod"].value == "^checkout-[a-z0-9]+-[a-z0-9]{5}$"


def test_a_cluster_label_and_a_node() -> None:
    alert = {"cluster": "eu-1", "node": "node1", "instance": "10.0.0.1:9100"}
    assert kept({"cluster": "eu-1", "node": "node1"}, alert, TargetKind.NODE, "node1")
    assert not kept({"cluster": "eu-2", "node": "node1"}, alert, TargetKind.NODE, "node1")
    assert not kept({"node": "node2"}, alert, TargetKind.NODE, "node1")
    assert kept({"instance": "10.0.0.1:9100"}, alert, TargetKind.NODE, "node1")


@pytest.mark.parametrize("hostile", ["(.*", "a|b", "$(id)", ".*"])
def test_H07_a_value_of_the_alert_is_never_a_pattern(hostile: str) -> None:
    alert = {"namespace": "shop", "pod": hostile, "cluster": hostile}
    matchers = series_matchers(target(name="checkout"), alert)
    assert all(not one.regex or one.value == pod_name_pattern(target(name="checkout")) for one in matchers)
    assert not keep({"cluster": "eu-1"}, matchers)
