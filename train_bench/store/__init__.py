"""Results store: campaigns and published entries in one SQLite file, for queries."""
