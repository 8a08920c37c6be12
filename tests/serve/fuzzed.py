"""Random requests by the service's own description: such as it asks for, and such as it does not."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

Request = tuple[str, str, bytes | None]
_TEXT = st.text(max_size=8) | st.sampled_from(
    ["", "C03", "N1", "2023-09-01", "orders", "\x00", "' OR 1=1 --", "../x"]
)
_NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.integers(-2, 50)
ANYTHING = st.recursive(
    st.none() | st.booleans() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def values(schema: dict[str, Any], all_schemas: dict[str, Any], columns: list[str]) -> st.SearchStrategy[Any]:
    """Values of a JSON schema; objects of any shape have the names of columns that there are."""
    if "$ref" in schema:
        return values(all_schemas[schema["$ref"].rpartition("/")[2]], all_schemas, columns)
    if "anyOf" in schema:
        return st.one_of([values(each, all_schemas, columns) for each in schema["anyOf"]])
    match schema.get("type"):
        case "object" if "properties" in schema:
            given = {name: values(each, all_schemas, columns) for name, each in schema["properties"].items()}
            must = {name: given.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(must, optional=given)
        case "object":
            return st.dictionaries(st.sampled_from(columns), ANYTHING, max_size=4)
        case "array":
            part = values(schema.get("items", {}), all_schemas, columns)
            return st.lists(part, min_size=schema.get("minItems", 0), max_size=3)
        case "string":
            return _TEXT
        case "integer":
            return st.integers(schema.get("minimum", -5), schema.get("maximum", 50))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return ANYTHING


def requests(described: dict[str, Any], columns: list[str]) -> st.SearchStrategy[Request]:
    """Requests of every place and way that a description names: by its words, beside them, and as bytes."""
    schemas, ways = described["components"]["schemas"], []
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            place = st.just(path)
            if "{name}" in path:
                place = _TEXT.map(lambda name, path=path: path.replace("{name}", quote(name, safe="")))
            names = [each["name"] for each in told.get("parameters", ()) if each["in"] == "query"]
            query = st.dictionaries(st.sampled_from(names), _TEXT, max_size=3) if names else st.just({})
            where = st.builds(
                lambda place, query: f"{place}?{urlencode(query, errors='replace')}" if query else place,
                place,
                query,
            )
            body: st.SearchStrategy[bytes | None] = st.none()
            if "requestBody" in told:
                schema = told["requestBody"]["content"]["application/json"]["schema"]
                good = values(schema, schemas, columns)
                body = (good | good | good | ANYTHING).map(
                    lambda value: json.dumps(value).encode()
                ) | st.binary(max_size=40)
            ways.append(st.tuples(st.just(method.upper()), where, body))
    odd = st.tuples(
        st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
        st.sampled_from(list(described["paths"])),
        st.none(),
    )
    posts = [way for way in ways if way is not None]
    return st.one_of([*posts, odd])
