"""The schema as a picture: an SVG of boxes and arrows, with nothing in it that could run."""

from __future__ import annotations

import html
from dataclasses import dataclass

import pyarrow as pa

from quartet.database import Database, Relation, Table
from quartet.errors import printable

BOX_WIDTH = 230
LINE_HEIGHT = 18
HEADER = 40
GAP_X, GAP_Y, MARGIN = 110, 28, 24
MOST_COLUMNS = 7
_TIMED, _STATIC, _INK, _INFERRED = "#1f6f8b", "#6b7280", "#111827", "#c2410c"


@dataclass(frozen=True)
class Box:
    """A table on the page: its place and the lines written in it."""

    table: Table
    x: int
    y: int
    lines: list[tuple[str, str]]  # (mark, text)

    @property
    def height(self) -> int:
        return HEADER + LINE_HEIGHT * len(self.lines) + 8

    def line_y(self, columns: tuple[str, ...]) -> int:
        """The height at which the first of some columns is written (the header if it is not shown)."""
        wanted = _column_line(self.table.data.schema.field(columns[0]))
        for place, (_, text) in enumerate(self.lines):
            if text == wanted:
                return self.y + HEADER + LINE_HEIGHT * place + LINE_HEIGHT // 2
        return self.y + HEADER // 2


def schema_svg(database: Database) -> str:
    """The schema: referenced tables left, referring tables right, dashed arrows for inferred links."""
    boxes = _place(database)
    width = max(box.x for box in boxes.values()) + BOX_WIDTH + MARGIN
    height = max(box.y + box.height for box in boxes.values()) + MARGIN + LINE_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{_INK}"/></marker></defs>',
        *(_arrow(relation, boxes) for relation in database.relations),
        *(_box(box) for box in boxes.values()),
        f'<text x="{MARGIN}" y="{height - 10}" fill="{_STATIC}">◆ key   → link   ◷ time   '
        "blue: rows have a time   grey: always known   dashed: inferred</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _place(database: Database) -> dict[str, Box]:
    """A box for each table, in columns by how many links lead on from it."""
    levels = _levels(database)
    boxes: dict[str, Box] = {}
    floor: dict[int, int] = {}
    for name, table in database.tables.items():
        level = levels[name]
        y = floor.get(level, MARGIN)
        boxes[name] = Box(table, MARGIN + level * (BOX_WIDTH + GAP_X), y, _lines(table))
        floor[level] = y + boxes[name].height + GAP_Y
    return boxes


def _levels(database: Database) -> dict[str, int]:
    """0 for tables that refer to none, else one more than the deepest table referred to.

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
    room = max(MOST_COLUMNS - len(named), 2)
    more = [(" ", f"… {len(plain) - room} more")] if len(plain) > room else []
    return named + plain[:room] + more


def _column_line(field: pa.Field) -> str:
    return f"{field.name}: {field.type}"


def _box(box: Box) -> str:
    color = _TIMED if box.table.is_timed else _STATIC
    rows = [
        f'<g><rect x="{box.x}" y="{box.y}" width="{BOX_WIDTH}" height="{box.height}" rx="6" fill="#f9fafb" '
        f'stroke="{color}"/>',
        f'<path d="M{box.x},{box.y + HEADER - 6} v-{HEADER - 12} q0,-6 6,-6 h{BOX_WIDTH - 12} q6,0 6,6 '
        f'v{HEADER - 12} z" fill="{color}"/>',
        f'<text x="{box.x + 10}" y="{box.y + 15}" fill="white" font-weight="bold">'
        f"{_text(box.table.name, 28)}</text>",
        f'<text x="{box.x + 10}" y="{box.y + 29}" fill="white" font-size="10">'
        f"{box.table.num_rows:,} rows</text>",
    ]
    for place, (mark, text) in enumerate(box.lines):
        y = box.y + HEADER + LINE_HEIGHT * place + 12
        rows.append(f'<text x="{box.x + 10}" y="{y}" fill="{color}">{mark}</text>')
        rows.append(f'<text x="{box.x + 26}" y="{y}" fill="{_INK}">{_text(text, 30)}</text>')
    return "\n".join([*rows, "</g>"])


def _arrow(relation: Relation, boxes: dict[str, Box]) -> str:
    child, parent = boxes[relation.table], boxes[relation.parent]
    from_y, to_y = child.line_y(relation.foreign_key.columns), parent.y + HEADER // 2
    inferred = relation.foreign_key.origin.is_inferred
    style = f'stroke="{_INFERRED}" stroke-dasharray="5,4"' if inferred else f'stroke="{_INK}"'
    if child.x > parent.x:
        from_x, to_x = child.x, parent.x + BOX_WIDTH
        bend = (from_x - to_x) // 2
        path = f"M{from_x},{from_y} C{from_x - bend},{from_y} {to_x + bend},{to_y} {to_x},{to_y}"
    else:  # within one column, or backwards in a cycle: around the right-hand side
        from_x, to_x = child.x + BOX_WIDTH, parent.x + BOX_WIDTH
        out = max(from_x, to_x) + GAP_X // 2
        path = f"M{from_x},{from_y} C{out},{from_y} {out},{to_y} {to_x},{to_y}"
    return f'<path d="{path}" fill="none" {style} stroke-width="1.2" opacity="0.75" marker-end="url(#tip)"/>'


def _text(text: str, most: int) -> str:
    """Text fit for XML: shortened, without control characters, escaped."""
    clean = printable(text)
    return html.escape(clean if len(clean) <= most else clean[: most - 1] + "…")
