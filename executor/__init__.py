"""The process that changes production, and the only one that can. Imports `catalog` and `sources`.

It pulls signed orders (`pulling`), journals each before anything else (`journal`), applies its own limits from a file that the
bot cannot write (`bounds`), refuses what the live objects forbid (`preflight`), and carries out the rest as a transaction:

    begin → limits → preflight → checkpoint → intent → apply → settle → committed | ineffective
                                                 └→ undo → verify undo → rolled_back

What happens next is decided by pure functions (`core`) over a small journaled state (`transactions`); `running` performs the
effects they name and journals each answer. So the process may die between any two instructions: on start it finds every open
transaction and finishes it. It has no listening port, no model, no chat, and one account per cluster.
"""
