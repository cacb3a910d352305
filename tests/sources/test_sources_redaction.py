"""Secrets leave, names stay, twice is once."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sources.redaction import TAG, Redactor

REDACTOR = Redactor(b"a key of the installation")
UPPER, LOWER, DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"


def red(text: str) -> str:
    return REDACTOR.text(text)


# --- cases by name


def test_H09_secrets_in_a_log_line() -> None:
    jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
    line = f"conn=postgres://app:S3cr3tPw@db:5432 token=ghp_FAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKE Authorization: Bearer {jwt}"
    found = red(line)
    for secret in ("S3cr3tPw", "ghp_FAKE", "eyJhbGci", "c2lnbmF0dXJl"):
        assert secret not in found
    assert "@db:5432" in found
    assert red("Authorization: Bearer eyJhbGciOi...") == red("Authorization: Bearer eyJhbGciOi...")
    assert "eyJhbGci" not in red("Authorization: Bearer eyJhbGciOi...")


def test_H09_the_same_secret_is_the_same_tag_and_another_key_gives_another() -> None:
    one, two = red("password=hunter2 x"), red("a log says password: hunter2")
    assert TAG.findall(one) == TAG.findall(two) != []
    assert TAG.findall(red("password=hunter3")) != TAG.findall(one)
    assert Redactor(b"other").text("password=hunter2") != red("password=hunter2")
    assert "[redacted:value:" in one


def test_H10_a_secret_object_is_masked_in_both_forms_and_wherever_it_is_repeated() -> None:
    bundle = {
        "objects": [
            {
                "kind": "Secret",
                "metadata": {"name": "db", "namespace": "shop", "uid": "6f1c2d3e-1111-2222-3333-444455556666"},
                "data": {"password": "aHVudGVyMg=="},
                "stringData": {"pin": "four-seven-one-one"},
            }
        ],
        "logs": ["login with hunter2 failed", "sent aHVudGVyMg==", "four-seven-one-one"],
        "note": "a hunter2x is another word",
    }
    found = REDACTOR.mapping(bundle)
    text = repr(found)
    assert "aHVudGVyMg" not in text
    assert "hunter2 " not in text
    assert "four-seven" not in text
    assert found["objects"][0]["metadata"] == bundle["objects"][0]["metadata"]  # type: ignore[index]
    assert found["note"] == bundle["note"]


def test_H10_a_secret_manifest_in_plain_text() -> None:
    found = red("apiVersion: v1\nkind: Secret\nmetadata:\n  name: db-creds\ndata:\n  dsn: aHVudGVyMg==\nlater hunter2 was seen")
    assert "aHVudGVyMg" not in found
    assert "hunter2" not in found
    assert "name: db-creds" in found


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('args: ["--api-key=sk-FAKE1234"]', "sk-FAKE"),
        ("exec app --token abc123def", "abc123def"),
        ("--db.password 'a b c'", "a b c"),
        ("error: https://user:pass@host/path", "user:pass"),
        ("http://prometheus:9090/graph?g0.expr=up&token=abc", "token=abc"),
        ("redis://user:pa:ss@host:6379/0", "pa:ss"),
        ("amqp://u:p@ss@word@mq:5672/", "p@ss@word"),
        ("postgres://app:p/w#d@db:5432/x", "p/w#d"),
        ("dial user:pa:ss@db.shop failed", "pa:ss"),
        ("https://hooks.slack.com/services/T000/B000/XXXXXXXX", "T000/B000/XXXXXXXX"),
        ("https://discord.com/api/webhooks/123/abc-DEF_ghi", "abc-DEF_ghi"),
        ("https://discordapp.com/api/v10/webhooks/123/abc-DEF_ghi", "abc-DEF_ghi"),
        ("Set-Cookie: sid=abcdef; Path=/", "sid=abcdef"),
        ('"cookie": "a=b; c=d"', "a=b"),
        ("password is: hunter2", "hunter2"),
        ("the password was hunter2.", "hunter2"),
        ('{"pwd":"x y z"}', "x y z"),
        ('{"user":"bob","dbPassword": "p\\"q r"}', "q r"),
        (r'msg="{\"password\":\"a b\"}"', "a b"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("spring.datasource.password: hunter2", "hunter2"),
        ("X-Api-Key: abcdef", "abcdef"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
        ("id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("password: |\n  line one\n  line two\nnext: x", "line two"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----", "def"),
        ("-----BEGIN EC PRIVATE KEY-----\nabc\ncut of", "abc"),
        ("payload=cGFzc3dvcmQ9aHVudGVyMg==", "cGFzc3dvcmQ9"),
        ("mysql -u root -phunter2 shop", "hunter2"),
        ("docker login -u x -p hunter2", "hunter2"),
        ("curl -u admin:Secr3tPass! https://x", "Secr3tPass"),
        ("Proxy-Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("sent header bearer abcdefghijklmnop", "abcdefghijklmnop"),
        ("xoxb-1234567890-abcdefghij", "xoxb-1234567890"),
        ("glpat-abcdefghij0123456789", "glpat-abcdefghij"),
        ("sas token=sv%3D2021", "sv%3D2021"),
    ],
)
def test_H12_secrets_in_arguments_errors_and_addresses(text: str, secret: str) -> None:
    found = red(text)
    assert secret not in found
    assert TAG.search(found)
    assert red(found) == found


@pytest.mark.parametrize(
    "text",
    [
        'pods "checkout-7d9f8c6b5d-abcde" not found',
        "Back-off restarting failed container app in pod checkout-7d9f8c6b5d-abcde_shop(6f1c2d3e-1111-2222-3333-444455556666)",
        f"image registry.example/web:1.25@sha256:{'ab' * 32} pulled",
        'secret "db-creds" not found',
        "secretName: db-creds",
        'MountVolume.SetUp failed for volume "web-data" : configmap "web" not found',
        "unattached volumes=[data kube-api-access-x7x7x]: timed out",
        "token: invalid",
        'msg="token expired" level=warn',
        "the password is wrong",
        "tokens: 512",
        "http://10.0.0.1:8080/path/@foo",
        "http://web.shop.svc.cluster.local:8080/healthz",
        "sk-frontend-7d9f8c6b5d-abcde",
        "OOMKilled exit 137 at 2026-11-29T10:00:00.123456Z node=node1",
        "trace=4bf92f3577b34da6a3ce929d0e0e4736 span=00f067aa0ba902b7",
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available",
        "Error: ImagePullBackOff (registry.example/shop/web:2.0.1)",
        "exceeded quota: compute, requested: pods=1, used: pods=3, limited: pods=3",
    ],
)
def test_lines_without_a_secret_stay_as_they_are(text: str) -> None:
    assert red(text) == text


def test_documents_keep_their_identity_and_lose_what_tells() -> None:
    document: dict[str, Any] = {
        "kind": "Deployment",
        "metadata": {
            "name": "token",
            "namespace": "secret",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"},
        },
        "spec": {
            "containers": [
                {
                    "name": "password",
                    "image": f"web@sha256:{'ab' * 32}",
                    "args": ["--db-password", "hunter2", "--verbose", "--token=abc"],
                    "env": [{"name": "DB_PASSWORD", "value": "hunter22"}, {"name": "MODE", "value": "fast"}],
                    "envFrom": [{"secretRef": {"name": "db-creds"}}],
                }
            ],
            "volumes": [{"name": "s", "secret": {"secretName": "db-creds"}}],
            "replicas": 3,
        },
        "apiKey": "k-1",
        "message": "started with hunter22",
    }
    found = REDACTOR.mapping(document)
    text = repr(found)
    for secret in ("hunter2", "abc'", "k-1", "last-applied"):
        assert secret not in text, secret
    container = found["spec"]["containers"][0]
    assert (found["metadata"]["name"], found["metadata"]["namespace"], container["name"]) == ("token", "secret", "password")
    assert container["image"] == document["spec"]["containers"][0]["image"]
    assert container["env"][1] == {"name": "MODE", "value": "fast"}
    assert (container["args"][0], container["args"][2]) == ("--db-password", "--verbose")
    assert found["spec"]["volumes"] == document["spec"]["volumes"]
    assert found["metadata"]["annotations"] == {"team": "a"}
    assert found["spec"]["replicas"] == 3
    assert REDACTOR.mapping(found) == found


def test_a_uid_is_no_secret_beside_a_word_that_a_detector_knows_but_is_one_as_a_value() -> None:
    uid = "6f1c2d3e-1111-2222-3333-444455556666"
    assert red(f"deployment heroku {uid}") == f"deployment heroku {uid}"
    assert uid not in red(f"HEROKU_API_KEY={uid}")


def test_a_name_that_contains_a_secret_stays_a_name() -> None:
    found = REDACTOR.mapping(
        {"kind": "Secret", "metadata": {"name": "hunter2-db"}, "data": {"p": "aHVudGVyMg=="}, "log": "hunter2-db hunter2"}
    )
    assert found["metadata"]["name"] == "hunter2-db"
    assert found["log"].count("[redacted:echo:") == 2


def test_lines_are_seen_together() -> None:
    lines = ["before", "-----BEGIN PRIVATE KEY-----", "abcdef", "-----END PRIVATE KEY-----", "after"]
    found = REDACTOR.lines(lines)
    assert (found[0], found[-1], len(found)) == ("before", "after", 3)
    assert REDACTOR.lines([]) == ()


# --- properties

printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=120)
anything = st.text(max_size=200)
pieces = st.sampled_from(
    [
        "password=",
        "token: ",
        "://",
        "user:",
        "@",
        "Bearer ",
        "eyJ",
        "kind: Secret ",
        "aHVudGVyMg==",
        '"',
        "'",
        "\\",
        "\n",
        "[redacted:",
        ":",
        "0123abcd]",
        "[redacted:value:0123abcd]",
        "--token ",
        "is ",
        "cookie: ",
        "?a=b",
        "sk-",
        "ghp_",
        "-----BEGIN PRIVATE KEY-----",
        "x",
        " ",
        "AKIA",
        "hunter2",
        "|",
        "\u202e",
    ]
)
mixtures = st.lists(st.one_of(pieces, st.text(max_size=6)), max_size=14).map("".join)


@given(st.one_of(anything, printable, mixtures))
@settings(max_examples=150, deadline=None)
def test_twice_is_once(text: str) -> None:
    once = red(text)
    assert red(once) == once


labels = st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
dns_names = st.one_of(
    labels,
    st.builds(
        lambda name, hash_, random: f"{name}-{hash_}-{random}",
        labels,
        st.text(LOWER + DIGITS, min_size=9, max_size=10),
        st.text(LOWER + DIGITS, min_size=5, max_size=5),
    ),
    st.lists(labels, min_size=2, max_size=5).map(".".join),
)
uids = st.uuids().map(str)
digests = st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda digits: f"sha256:{digits}")
sentences = st.sampled_from(
    [
        "{}",
        'pod "{}" not found',
        "Scaled up replica set {} from 0 to 1",
        "shop/{} is not ready",
        "deployment={}",
        "image web@{} pulled",
        "Stopping container {}",
        '{{"name":"{}","ready":true}}',
        "[{}] restarted",
        "http://{}:8080/healthz refused",
        "({})",
    ]
)


@given(sentences, st.one_of(dns_names, uids, digests))
@settings(max_examples=150, deadline=None)
def test_names_uids_and_digests_survive(sentence: str, name: str) -> None:
    assert red(sentence.format(name)) == sentence.format(name)


# letters outside ordinary words and names, so that finding it in the result proves that it survived
secret_values = st.text(UPPER + LOWER + DIGITS + "!#%*+-_", min_size=8, max_size=40).filter(
    lambda value: any(c in UPPER for c in value) and any(c in DIGITS for c in value) and not value.startswith("-")
)
contexts = st.sampled_from(
    [
        "password={}",
        "PASSWORD: {}",
        "password is: {}",
        "password is {}",
        '"pwd": "{}"',
        "'secret': '{}'",
        r"\"token\":\"{}\"",
        "--token={}",
        "--password {}",
        "DB_PASSWORD={} next",
        "api_key={}&x=1",
        "apiKey: {}",
        "client-secret={}",
        "db.passwd={};",
        "Authorization: Bearer {}",
        "authorization=Basic {}",
        "Cookie: sid={}",
        "Set-Cookie: sid={}; Path=/",
        "postgres://app:{}@db:5432/x",
        "https://{}@host/x",
        "https://host/x?sig={}",
        "user:{}@host",
        "https://hooks.slack.com/services/{}",
        "https://discord.com/api/webhooks/1/{}",
        "ghp_{}AAAAAAAAAAAAAAAA",
        "password = {}",
        "secret=>{}",
        "accessKey:'{}'",
        "conn pass: {}, retry",
        "[token={}]",
        "(passphrase={})",
        "<password>: {}",
        "<db.password>{}</db.password>",
    ]
)


@given(contexts, secret_values, dns_names)
@settings(max_examples=250, deadline=None)
def test_secrets_never_survive(context: str, secret: str, name: str) -> None:
    assume("#" not in secret or "?" not in context)  # a fragment is no part of a query
    assume(not context.startswith("ghp_") or secret.isalnum())
    text = f"pod {name}: {context.format(secret)} in {name}"
    found = red(text)
    assert secret not in found
    assert found.startswith(f"pod {name}: ")
    assert red(found) == found


@given(st.binary(min_size=4, max_size=40), st.sampled_from(["password", "dsn", "ca.crt", "x"]))
@settings(deadline=None)
def test_H10_no_value_of_a_secret_object_survives_in_either_form(value: bytes, key: str) -> None:
    encoded = base64.b64encode(value).decode()
    found = REDACTOR.mapping({"kind": "Secret", "metadata": {"name": "n"}, "data": {key: encoded}, "log": f"saw {encoded} there"})
    assert encoded not in repr(found)
    assert TAG.fullmatch(found["data"][key])


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | mixtures,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "value", "password", "args", "data", "kind", "env", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["kind", "data", "spec", "metadata", "args"]), json_documents, max_size=4))
@settings(deadline=None)
def test_any_document_keeps_its_shape_and_twice_is_once(document: dict[str, Any]) -> None:
    once = REDACTOR.mapping(document)
    assert set(once) == set(document)
    assert REDACTOR.mapping(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "password" * 20_000,
        "eyJ" * 50_000,
        "a:b@" * 40_000,
        "://a:" * 30_000,
        "password is " * 15_000,
        "http://a?" * 20_000,
        "[redacted:a:00000000]" * 8_000,
        "-----BEGIN PRIVATE KEY-----" * 6_000,
        '"' * 100_000,
        "secret_" * 25_000,
        "mysql -p" * 20_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_costs_time_in_proportion(text: str) -> None:
    began = time.perf_counter()
    red(text)
    assert time.perf_counter() - began < 5


def test_a_text_that_cannot_be_scanned_does_not_pass() -> None:
    found = red("x" * (9 * 1024 * 1024))
    assert TAG.fullmatch(found)
