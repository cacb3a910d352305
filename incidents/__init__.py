"""From stored alert to closed incident: phases, approvals, orders, labels. Owns the bot's tables.

May import catalog, ladder, sources, triage and verifier. One row is one incident; the leader advances a due row by one phase in
one database transaction, so that after any crash the row is simply due again. `incidents.mint` is the only module that signs
orders, and it does so from a stored decision or a stored quorum of approvals alone.
"""
