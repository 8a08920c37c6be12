"""What a picture may be made of, and names that would like to be more than names."""

from __future__ import annotations

import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
# Everything that our pictures are made of. Scripts, links, styles, images and handlers are not in it.
_ELEMENTS = {
    "svg", "rect", "defs", "marker", "path", "text", "line", "polyline", "polygon", "circle", "g", "title", "desc",
}  # fmt: skip
_ATTRIBUTES = {
    "width", "height", "viewBox", "font-family", "font-size", "font-weight", "fill", "id", "refX", "refY",
    "markerWidth", "markerHeight", "orient", "d", "stroke", "stroke-width", "stroke-dasharray", "opacity",
    "marker-end", "x", "y", "rx", "text-anchor", "x1", "x2", "y1", "y2", "points", "cx", "cy", "r",
    "role",
}  # fmt: skip
ATTACKS = [
    "</text><script>alert(1)</script>",
    "\"/><image href='http://x/y' onload='alert(1)'/>",
    "]]><!ENTITY x SYSTEM 'file:///etc/passwd'>&x;",
    "\x00\x1b[2J\x07\u202e\ud800\ufffe",
    "javascript:alert(1)",
    "{{7*7}}<!--",
]


def is_inert(svg: str) -> bool:
    """Whether a picture holds only our shapes and text, and refers to nothing outside itself."""
    for element in ET.fromstring(svg).iter():
        assert element.tag.removeprefix(SVG) in _ELEMENTS
        assert set(element.attrib) <= _ATTRIBUTES
        assert all("url(" not in value or value == "url(#tip)" for value in element.attrib.values())
        assert "http" not in "".join(element.attrib.values())
    return "<!" not in svg and "<?" not in svg
