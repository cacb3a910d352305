"""The vocabulary: what every other room speaks. Imports nothing of ours.

An alert becomes an incident, a diagnosis, evidence, a decision, an order, an outcome and a label; each of these arrows has its
type here, frozen and versioned (`catalog.documents`). `catalog.actions` names every remediation with typed parameters,
`catalog.registry` says of each how dangerous it is and whether it may ever be executed, `catalog.limits` is the pure
arithmetic of bounds that bot and executor both apply, and `catalog.signatures` is how an order is known to be the bot's.
"""
