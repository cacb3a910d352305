"""One module per stretch of an incident's life. `incidents.transitions` says what is due; these do it.

Each offers `work`, which may talk to the outside and holds no transaction, or `apply`, which runs inside the one transaction
that advances the row. Whatever `work` brings back is judged against the row as it is *then*: an incident that moved on while it
was being assessed keeps its new state and the result is thrown away.
"""
