"""The picture of a schema: what it shows, and that nothing in it can run, whatever the names (P29)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quartet.database import Database, ForeignKey, Schema, TableSchema, TimeColumn
from quartet.database.schema import inferred
from quartet.drawing import schema_svg
from tests import market
from tests.drawing.inert import ATTACKS, SVG, is_inert
from tests.strategies import examples


@pytest.fixture
def picture(tmp_path: Path) -> ET.Element:
    (tmp_path / "market.yaml").write_text(market.SCHEMA)
    return ET.fromstring(schema_svg(Database.load(market.arrow_tables(), tmp_path / "market.yaml")))


def texts(picture: ET.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def arrows(picture: ET.Element) -> list[dict[str, str]]:
    return [path.attrib for path in picture.iter(f"{SVG}path") if "marker-end" in path.attrib]


def table(column: str = "id", **facts: object) -> TableSchema:
    return TableSchema((column,), **facts)  # type: ignore[arg-type]


def test_tables_columns_and_links_are_shown(picture: ET.Element) -> None:
    shown = texts(picture)
    assert {"cities", "customers", "items", "orders", "products", "11 rows"} <= set(shown)
    at = shown.index("orders")
    assert shown[at + 2 : at + 14 : 2] == ["◆", "→", "→", "→", "◷", " "]
    assert shown[at + 3 : at + 15 : 2] == [
        "id: int64",
        "customer: string",
        "country: string",
        "city: string",
        "placed: timestamp[ns]",
        "amount: double",
    ]
    assert len(arrows(picture)) == 5


def test_boxes_do_not_overlap(picture: ET.Element) -> None:
    boxes = [
        tuple(float(rect.attrib[side]) for side in ("x", "y", "width", "height"))
        for rect in picture.iter(f"{SVG}rect")
        if "stroke" in rect.attrib
    ]
    assert len(boxes) == 5
    for place, (x, y, width, height) in enumerate(boxes):
        assert x + width <= int(picture.attrib["width"])
        assert y + height <= int(picture.attrib["height"])
        for x2, y2, width2, height2 in boxes[place + 1 :]:
            assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y


def test_a_guessed_link_is_dashed() -> None:
    guessed = ForeignKey(("p",), "a", origin=inferred(0.8, "named so"))
    tables = {"a": pa.table({"id": [1]}), "b": pa.table({"p": [1], "q": [1]})}
    links = (guessed, ForeignKey(("q",), "a"))
    schema = Schema({"a": table(), "b": TableSchema(foreign_keys=links)})
    drawn = arrows(ET.fromstring(schema_svg(Database.build(tables, schema))))
    assert ["stroke-dasharray" in arrow for arrow in drawn] == [True, False]


def test_an_arrow_starts_at_its_column_also_when_the_name_has_a_colon() -> None:
    tables = {"a": pa.table({"id": [1]}), "b": pa.table({"p: q": [1], "p": [1]})}
    links = (ForeignKey(("p: q",), "a"), ForeignKey(("p",), "a"))
    schema = Schema({"a": table(), "b": TableSchema(foreign_keys=links)})
    picture = ET.fromstring(schema_svg(Database.build(tables, schema)))
    starts = [float(arrow["d"].split()[0].split(",")[1]) for arrow in arrows(picture)]
    lines = {float(e.attrib["y"]): e.text for e in picture.iter(f"{SVG}text") if "int64" in (e.text or "")}
    nearest = [lines[min(lines, key=lambda y, start=start: abs(y - start))] for start in starts]  # type: ignore[misc]
    assert nearest == ["p: q: int64", "p: int64"]


def test_cycles_and_self_references_have_a_place() -> None:
    columns = pa.table({"id": [1], "other": [1]})
    links = {name: (ForeignKey(("other",), to),) for name, to in (("a", "b"), ("b", "a"), ("c", "c"))}
    schema = Schema({name: table(foreign_keys=fks) for name, fks in links.items()})
    assert len(arrows(ET.fromstring(schema_svg(Database.build(dict.fromkeys("abc", columns), schema))))) == 3


def test_wide_tables_are_cut() -> None:
    wide = pa.table({f"column {number}": [1] for number in range(40)})
    database = Database.build({"t": wide}, Schema({"t": TableSchema(("column 7",), time=None)}))
    shown = texts(ET.fromstring(schema_svg(database)))
    assert "column 7: int64" in shown
    assert "… 33 more" in shown


# --- inert ----------------------------------------------------------------------------------------

names = st.text(min_size=1, max_size=40)


@examples(100)
@given(names, names, names)
@example(*ATTACKS[:3])
@example(*ATTACKS[3:])
def test_any_name_is_inert(name: str, other: str, column: str) -> None:
    columns = pa.array([1]), pa.array([1]), pa.array([{"é<b>": 1}]), pa.array(["2024-01-01"])
    data = pa.table(list(columns), names=_clean([column, f"{column}2", f"{column}3", "when"]))
    first, second, _, _ = data.column_names
    name, other = _clean([f"a{name}", f"b{other}"])
    schema = Schema(
        {
            name: TableSchema((first,), (ForeignKey((second,), other),), TimeColumn("when")),
            other: TableSchema((first,)),
        }
    )
    svg = schema_svg(Database.build({name: data, other: data}, schema))
    assert is_inert(svg)
    assert len(arrows(ET.fromstring(svg))) == 1


def _clean(found: list[str]) -> list[str]:
    """The names as Arrow can hold them: it has no lone surrogates."""
    return [name.encode("utf-8", "replace").decode() for name in found]
