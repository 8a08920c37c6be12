"""The schema as a picture of boxes and arrows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from quartet.database import Database, Relation, Table
from quartet.drawing import svg

_BOX_WIDTH = 230
_LINE_HEIGHT = 18
_HEADER = 40
_GAP_X, _GAP_Y, _MARGIN = 110, 28, 24
_MOST_COLUMNS = 7


@dataclass(frozen=True)
class _Box:
    """A table on the page: its place and the lines written in it."""

    table: Table
    x: int
    y: int
    lines: list[tuple[str, str]]  # (mark, text)

    @property
    def height(self) -> int:
        return _HEADER + _LINE_HEIGHT * len(self.lines) + 8

    def line_y(self, columns: tuple[str, ...]) -> int:
        """Returns the height at which the first of some columns is written (the header if it is not shown)."""
        wanted = _column_line(self.table.data.schema.field(columns[0]))
        for place, (_, text) in enumerate(self.lines):
            if text == wanted:
                return self.y + _HEADER + _LINE_HEIGHT * place + _LINE_HEIGHT // 2
        return self.y + _HEADER // 2


def schema_svg(database: Database) -> str:
    """Draws the schema: referenced tables left, referring tables right, dashed arrows for inferred links."""
    boxes = _place(database)
    width = max(box.x for box in boxes.values()) + _BOX_WIDTH + _MARGIN
    height = max(box.y + box.height for box in boxes.values()) + _MARGIN + _LINE_HEIGHT
    legend = "◆ key · → link · ◷ time · blue: rows have a time · grey: always known · dashed: inferred"
    parts = [
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{svg.INK}"/></marker></defs>',
        *(_arrow(relation, boxes) for relation in database.relations),
        *(part for box in boxes.values() for part in _box(box)),
        svg.text(_MARGIN, height - 10, legend, fill=svg.GREY),
    ]
    about = "; ".join(f"{r.table}.{r.foreign_key.label} links to {r.parent}" for r in database.relations)
    return svg.page(width, height, parts, font_size=12, title="Tables and their links", about=about)


def _place(database: Database) -> dict[str, _Box]:
    """Returns a box for each table, in columns by how many links lead on from it."""
    levels = _levels(database)
    boxes: dict[str, _Box] = {}
    floor: dict[int, int] = {}
    for name, table in database.tables.items():
        level = levels[name]
        y = floor.get(level, _MARGIN)
        boxes[name] = _Box(table, _MARGIN + level * (_BOX_WIDTH + _GAP_X), y, _lines(table))
        floor[level] = y + boxes[name].height + _GAP_Y
    return boxes


def _levels(database: Database) -> dict[str, int]:
    """Returns 0 for tables that refer to none, else one more than the deepest table referred to.

    Cycles are cut by letting a table rise at most once for each table.
    """
    levels = dict.fromkeys(database.tables, 0)
    for _ in database.tables:
        for relation in database.relations:
            if relation.table != relation.parent:
                raised = max(levels[relation.table], levels[relation.parent] + 1)
                levels[relation.table] = min(raised, len(database.tables) - 1)
    used = sorted(set(levels.values()))
    return {name: used.index(level) for name, level in levels.items()}


def _lines(table: Table) -> list[tuple[str, str]]:
    keys, links = set(table.primary_key), {c for fk in table.schema.foreign_keys for c in fk.columns}
    times = {table.schema.time.column} if table.schema.time else set()
    times |= {table.schema.available_at} if table.schema.available_at else set()

    def mark(name: str) -> str:
        return "◆" if name in keys else "→" if name in links else "◷" if name in times else " "

    columns = [(mark(f.name), _column_line(f)) for f in table.data.schema]
    columns.sort(key=lambda line: "◆→◷ ".index(line[0]))
    named = [line for line in columns if line[0] != " "]
    plain = [line for line in columns if line[0] == " "]
    room = max(_MOST_COLUMNS - len(named), 2)
    more = [(" ", f"… {len(plain) - room} more")] if len(plain) > room else []
    return named + plain[:room] + more


def _column_line(field: pa.Field) -> str:
    return f"{field.name}: {field.type}"


def _box(box: _Box) -> list[str]:
    color, x = svg.LINE if box.table.is_timed else svg.GREY, box.x + 10
    parts = [
        svg.rect(box.x, box.y, _BOX_WIDTH, box.height, "#f9fafb", rx=6, stroke=color),
        svg.rect(box.x, box.y, _BOX_WIDTH, _HEADER - 6, color, rx=6),
        svg.text(x, box.y + 15, box.table.name, most=28, fill="white", font_weight="bold"),
        svg.text(x, box.y + 29, f"{box.table.num_rows:,} rows", fill="white", font_size=10),
    ]
    for place, (mark, label) in enumerate(box.lines):
        y = box.y + _HEADER + _LINE_HEIGHT * place + 12
        parts += [svg.text(x, y, mark, fill=color), svg.text(x + 16, y, label, most=30)]
    return parts


def _arrow(relation: Relation, boxes: dict[str, _Box]) -> str:
    child, parent = boxes[relation.table], boxes[relation.parent]
    from_y, to_y = child.line_y(relation.foreign_key.columns), parent.y + _HEADER // 2
    inferred = relation.foreign_key.origin.is_inferred
    style = f'stroke="{svg.MARK}" stroke-dasharray="5,4"' if inferred else f'stroke="{svg.INK}"'
    if child.x > parent.x:
        from_x, to_x = child.x, parent.x + _BOX_WIDTH
        bend = (from_x - to_x) // 2
        path = f"M{from_x},{from_y} C{from_x - bend},{from_y} {to_x + bend},{to_y} {to_x},{to_y}"
    else:  # within one column, or backwards in a cycle: around the right-hand side
        from_x, to_x = child.x + _BOX_WIDTH, parent.x + _BOX_WIDTH
        out = max(from_x, to_x) + _GAP_X // 2
        path = f"M{from_x},{from_y} C{out},{from_y} {out},{to_y} {to_x},{to_y}"
    return f'<path d="{path}" fill="none" {style} stroke-width="1.2" opacity="0.75" marker-end="url(#tip)"/>'
