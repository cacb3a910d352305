"""What the bot counts and measures, one name per stage from webhook to label. Served on `/metrics`.

Labels never carry names from alerts: their number is bounded by this file, by the clusters and by the surfaces configured.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)

# Ingest
WEBHOOKS = Counter("sre_ladder_webhooks", "Webhooks by result: accepted, or why not.", ["result"])
FOREIGN_WEBHOOKS = Counter("sre_ladder_webhooks_foreign", "Webhooks refused because another product sent them.", ["vendor"])
ALERTS = Counter(
    "sre_ladder_alerts", "Alerts of accepted webhooks by effect: stored, resent, resolved, late, dropped, stale.", ["effect"]
)
CLAMPED = Counter("sre_ladder_alerts_clamped", "Alerts whose start lay in the future.")
TRUNCATED = Counter("sre_ladder_alerts_truncated", "Alerts that Alertmanager says it left out of its webhooks.")
INGEST_COMMIT_SECONDS = Histogram("sre_ladder_ingest_commit_seconds", "Time to store one group of webhooks.", buckets=_SHORT)
INGEST_ACCEPT_SECONDS = Histogram("sre_ladder_ingest_accept_seconds", "Time from a webhook's body to its commit.", buckets=_SHORT)
INGEST_WAITING = Gauge("sre_ladder_ingest_waiting", "Alerts that wait to be stored.")

# Resolving
RESOLVED_TARGETS = Counter("sre_ladder_targets", "Stored alerts by how resolving ended: attached or unresolved.", ["result"])
ALERT_BACKLOG = Gauge("sre_ladder_alert_backlog", "Stored alerts that are not yet attached.")
CLUSTER_UNREADABLE = Gauge("sre_ladder_cluster_unreadable", "1 while a cluster's API cannot be read.", ["cluster"])
INCIDENTS_OPENED = Counter("sre_ladder_incidents_opened", "Incidents opened by origin.", ["origin"])

# Phases
INCIDENTS_CLOSED = Counter("sre_ladder_incidents_closed", "Incidents closed by reason.", ["reason"])
INCIDENTS_OPEN = Gauge("sre_ladder_incidents_open", "Open incidents by phase.", ["phase"])
PHASE_SECONDS = Histogram("sre_ladder_phase_seconds", "Time one phase of one incident took.", ["phase"], buckets=_LONG)
PHASE_FAILURES = Counter("sre_ladder_phase_failures", "Phases that failed and will be tried again.", ["phase"])
TRIAGE_SECONDS = Histogram("sre_ladder_triage_seconds", "Time of one triage.", buckets=_LONG)
VERIFY_SECONDS = Histogram("sre_ladder_verify_seconds", "Time of one verification.", buckets=_LONG)
DECISIONS = Counter("sre_ladder_decisions", "Decisions by route.", ["route"])
PROPOSALS = Counter("sre_ladder_proposals", "Proposals by the state they reached.", ["state"])
CLICKS = Counter("sre_ladder_clicks", "Clicks and commands on proposals by result.", ["result"])
ORDERS = Counter("sre_ladder_orders", "Orders by mode and the state they reached.", ["mode", "state"])
OUTCOMES = Counter("sre_ladder_outcomes", "Outcomes by end.", ["end"])
LABELS = Counter("sre_ladder_labels", "Labels by question and origin.", ["question", "origin"])

# Messages and pages
OUTBOX_DUE = Gauge("sre_ladder_outbox_due", "Messages waiting to be sent.", ["surface"])
OUTBOX_SENT = Counter(
    "sre_ladder_outbox_sent", "Attempts to send by result: sent, unchanged, retry, refused.", ["surface", "result"]
)
SURFACE_DOWN = Gauge("sre_ladder_surface_down", "1 while a surface cannot be reached.", ["surface"])
PAGES_FIRING = Gauge("sre_ladder_pages_firing", "Pages that nobody has taken yet.", ["name"])
PAGE_POSTS = Counter("sre_ladder_page_posts", "Posts of pages to Alertmanager by result.", ["result"])

# Standing
LEADING = Gauge("sre_ladder_leading", "1 while this replica leads.", ["lease"])
POLICY_INVALID = Gauge("sre_ladder_policy_invalid", "1 while autonomy.yaml is invalid and an older reading is in force.")
POLICY_RELOADS = Counter("sre_ladder_policy_reloads", "Changed readings of autonomy.yaml by result.", ["result"])
CHAIN_HEADS = Counter("sre_ladder_chain_heads", "Signed heads of the event chains.")
STORE_TROUBLE = Counter("sre_ladder_store_trouble", "Times the database could not take or give data.", ["stage"])
ERASED = Counter("sre_ladder_erased", "Payloads erased after their retention.", ["what"])
