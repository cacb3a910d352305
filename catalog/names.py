"""Kubernetes names as the API server accepts them. Anything else from an alert makes its target invalid.

Source: RFC 1123 labels and subdomains, as in Kubernetes' "Object Names and IDs".
"""

from __future__ import annotations

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_dns_label(text: str) -> bool:
    """A namespace, Service or container name: at most 63 characters of lower case letters, digits and '-'."""
    return _LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """A Deployment, Pod, ReplicaSet or Node name: at most 253 characters, dot-separated labels."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None
