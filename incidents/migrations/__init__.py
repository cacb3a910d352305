"""Alembic migrations of the bot's database. `incidents.tables` is the truth; a test compares the two on both databases.

`python -m incidents.migrations "what changed"` writes the next revision from the difference.
"""
