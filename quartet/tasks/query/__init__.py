"""The predictive query language: text, tree, names, SQL, and the task that a query stands for (docs/query.md)."""

from quartet.tasks.query.grammar import is_query
from quartet.tasks.query.reading import Reading, query_place, read_query, selected_keys, target_tables

__all__ = ["Reading", "is_query", "query_place", "read_query", "selected_keys", "target_tables"]
