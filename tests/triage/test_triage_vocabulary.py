"""The vocabulary of alert names, and what unknown names may suggest."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from catalog.diagnoses import Family
from triage.vocabulary import kinds, priors, vocabulary

ALERTS = Path(__file__).parents[1] / "data" / "alerts.csv"
SCENARIO_NAMES = [
    "KubePodCrashLooping", "ContainerMemoryExhaustionPredicted", "ErrorBudgetBurn", "KubeHpaMaxedOut", "KubePodSchedulingFailed",
    "KubeNodeNotReady", "KubeStatefulSetReplicasMismatch", "IstioHighDenyRate", "CertManagerCertNotReady", "RBACPolicyDenied",
    "DatabaseConnectionPoolExhausted", "KubeResourceQuotaExhausted", "ContainerOOMKilling", "PredictedDiskPressure",
    "PodLatencyOutlier", "AuthFailures", "CPUSaturation", "ConsumerLag", "DeploymentReplicasZero", "PodWedged", "DatasourceNoData",
]  # fmt: skip
WORKLOAD_FAMILIES = {Family.WEDGED, Family.CAPACITY, Family.OUT_OF_MEMORY}


def catalogued() -> list[dict[str, str]]:
    with ALERTS.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_every_catalogued_alert_and_every_scenario_is_known() -> None:
    names = {row["alertname"] for row in catalogued()} | set(SCENARIO_NAMES)
    assert {name for name in names if not vocabulary().meaning(name).known} == set()


def test_what_the_catalogue_keeps_from_people_and_data_stores_suggests_no_workload_fault_strongly() -> None:
    """Where the runbooks say "escalate", no name alone suggests what would restart or scale something."""
    for row in catalogued():
        if row["typed_action"] == "escalate_human":
            meaning = vocabulary().meaning(row["alertname"])
            assert all(score <= 0.5 for family, score in meaning.priors.items() if family in WORKLOAD_FAMILIES), row["alertname"]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("CheckoutMemoryHigh", Family.OUT_OF_MEMORY),
        ("payment_no_data", Family.DATA_FAULT),
        ("ShopCpuTooHigh", Family.CAPACITY),
        ("BackendOOM", Family.OUT_OF_MEMORY),
        ("WorkerPodOutlier", Family.WEDGED),
        ("tls-certificate-expiring", Family.CERTIFICATE),
    ],
)
def test_an_unknown_name_is_read_by_its_words_and_cautiously(name: str, family: Family) -> None:
    meaning = vocabulary().meaning(name)
    assert not meaning.known
    assert max(meaning.priors, key=lambda one: meaning.priors[one]) is family
    assert max(meaning.priors.values()) <= vocabulary().ceiling


def test_a_name_without_a_known_word_suggests_nothing() -> None:
    assert vocabulary().meaning("Zorglub").priors == {}
    assert kinds(["Zorglub"]) == {"unknown"}


def test_several_alerts_give_the_highest_prior_of_each_family() -> None:
    found = priors(["CPUSaturation", "HighLatency"])
    assert found[Family.CAPACITY] == 0.6
    assert found[Family.DEPENDENCY] == 0.2
