"""Tables with keys, links and times; a reader for every kind of source; inference of what is not declared."""

from quartet.database.columns import canonical, is_plain
from quartet.database.database import Database
from quartet.database.entities import ProposedEntity, proposed_entities
from quartet.database.growth import rows_as_read
from quartet.database.hashing import digest_column, exact_rows, hash_rows, is_hashable, mix, salt_of
from quartet.database.inference.evidence import Possible
from quartet.database.inference.hindsight import read_differently
from quartet.database.inference.names import singular, split, word_set
from quartet.database.keys import NO_SUCH_KEY, KeyColumn, KeyMap
from quartet.database.late import dates_of, late_columns
from quartet.database.plain_yaml import read_yaml
from quartet.database.readers.address import hide_passwords
from quartet.database.readers.read import read_table
from quartet.database.relations import Relation
from quartet.database.schema import (
    COLUMN_KINDS,
    FACTS,
    ForeignKey,
    Origin,
    Schema,
    TableSchema,
    TimeColumn,
)
from quartet.database.table import Table
from quartet.database.writing import DatabaseTable
from quartet.database.written import schema_facts, schema_yaml

__all__ = [
    "COLUMN_KINDS",
    "FACTS",
    "NO_SUCH_KEY",
    "Database",
    "DatabaseTable",
    "ForeignKey",
    "KeyColumn",
    "KeyMap",
    "Origin",
    "Possible",
    "ProposedEntity",
    "Relation",
    "Schema",
    "Table",
    "TableSchema",
    "TimeColumn",
    "canonical",
    "dates_of",
    "digest_column",
    "exact_rows",
    "hash_rows",
    "hide_passwords",
    "is_hashable",
    "is_plain",
    "late_columns",
    "mix",
    "proposed_entities",
    "read_differently",
    "read_table",
    "read_yaml",
    "rows_as_read",
    "salt_of",
    "schema_facts",
    "schema_yaml",
    "singular",
    "split",
    "word_set",
]
