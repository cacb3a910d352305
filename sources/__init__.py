"""Read-only clients of a cluster: Kubernetes, Prometheus, Alertmanager. Imports `catalog` alone; there is no write verb in here.

What could not be read is never replaced by a guess. A source that did not answer raises `SourceUnavailable` (sources.errors),
a number that is no number is `Unknown` with its reason (sources.samples), a part of a workload that could not be read is
named in `TargetFacts.unread` (sources.workloads). `sources.redaction` is the one place where secrets leave a text, and it is
applied where text enters the system.

`sources.endpoints.open_sources` opens all readers of one cluster; `sources.owners.resolve_target` says which object the labels
of an alert speak of; `sources.workloads.read_facts` reads what the gates need to know of it.
"""
