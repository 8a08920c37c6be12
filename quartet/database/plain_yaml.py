"""Plain YAML: what a person would write and read, and nothing that only a program could."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from quartet.errors import UsageError

_MOST_VALUES = 100_000  # of a file, every alias counted as what it stands for


class _PlainLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, of which one would be lost, and aliases that grow beyond any file."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_values: dict[int, int] = {}  # of each node that is complete

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if node is None or (is_alias and id(node) not in self._num_values):
            raise yaml.MarkedYAMLError(problem="an alias holds itself")
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            keys = set[tuple[str, Any]]()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if (key.tag, key.value) in keys:
                    problem = f'the key "{key.value}" is given twice'
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                keys.add((key.tag, key.value))
            parts = [part for pair in node.value for part in pair]
        self._num_values[id(node)] = 1 + sum(self._num_values[id(part)] for part in parts)
        if self._num_values[id(node)] > _MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"there are more than {_MOST_VALUES:,} values")
        return node


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the plain mapping in a YAML file; tags that would build objects are refused."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _PlainLoader)
    except FileNotFoundError:
        raise UsageError("C09", f'there is no file "{path}"', "check the path") from None
    except OSError as error:
        raise UsageError("C09", f'"{path}" cannot be read ({error.strerror})', "check the path") from None
    except Exception as error:  # whatever the library raises where a value is not what its tag says
        reason = " ".join(str(error).split())
        raise UsageError("C04", f'"{path}" is not plain YAML: {reason}', "only plain YAML is read") from None
    if not isinstance(content, dict):
        raise UsageError("C04", f'"{path}" holds no mapping', 'start it with "tables:"')
    return content
