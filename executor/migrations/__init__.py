"""Migrations of the journal, the same on SQLite and PostgreSQL. `executor.migrating` runs them on start."""
