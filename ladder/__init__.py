"""Policy, gates and trust: what an incident may do by itself, and why. Imports catalog alone. Pure.

`policy` reads autonomy.yaml and says for a target which scopes, numbers and people apply. `deciding.decide(case, policy)` asks
the twelve gates of `gates` for each route and answers with the highest route whose gates all passed; a gate that could not tell
has not passed. `standing` and `looks` say what has been earned and what labels can show, `planning` and `checking` build what
an order must contain, `roles` says who may do what. Nothing here reads a clock, a database or a cluster.
"""
