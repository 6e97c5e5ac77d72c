"""Registries: the name a user types goes in, the registered object comes out.

Built-ins are listed in one literal table per kind, as `module:attribute`, and imported on first use. Only other names
are looked up among installed entry points: a scan costs tens of milliseconds.
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pramana.errors import BrokenPlugin, NotFound, suggest_similar


class Registry:
    """Names of one kind of plugin, and how to load each."""

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind, self.group, self.builtin = kind, group, builtin
        self._loaded: dict[str, Any] = {}

    @cached_property
    def _installed_entry_points(self) -> dict[str, EntryPoint]:
        return {name: points[0] for name, points in self._entry_points_by_name.items()}

    @cached_property
    def _entry_points_by_name(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            found.setdefault(point.name, []).append(point)
        return found

    def names(self) -> list[str]:
        """Return every name, built-ins first in the table's order."""
        return [*self.builtin, *sorted(self._installed_entry_points.keys() - self.builtin.keys())]

    def __contains__(self, name: str) -> bool:
        return name in self.builtin or name in self._installed_entry_points

    def load(self, name: str) -> Any:
        """Return the object registered under the name, importing it on first use."""
        if name not in self._loaded:
            if target := self.builtin.get(name):
                module, _, attribute = target.partition(":")
                self._loaded[name] = getattr(import_module(module), attribute)
            elif point := self._installed_entry_points.get(name):
                self._refuse_ambiguous_name(name)
                try:
                    self._loaded[name] = point.load()
                except Exception as error:  # a third-party module may raise anything on import
                    where = f"{point.value} of the package {find_package_name(point)}"
                    raise BrokenPlugin(
                        f'the {self.kind} "{name}" cannot be loaded from {where}: {type(error).__name__}: {error}'
                    ) from error
            else:
                hint = suggest_similar(name, self.names())
                raise NotFound(f'no {self.kind} is named "{name}"{hint}')
        return self._loaded[name]

    def _refuse_ambiguous_name(self, name: str) -> None:
        """Raise an error if installed packages register different objects under one name."""
        points = {point.value: point for point in self._entry_points_by_name[name]}
        if len(points) > 1:
            listed = " and ".join(
                f"{point.value} of the package {find_package_name(point)}" for point in points.values()
            )
            raise BrokenPlugin(
                f'the {self.kind} "{name}" is registered more than once: {listed}; uninstall one, or rename its entry '
                "point"
            )


def find_package_name(point: EntryPoint) -> str:
    """Return the name of the package that has an entry point."""
    return point.dist.name if point.dist else "?"


scorers = Registry("scorer", "pramana.scorers", {})
exporters = Registry(
    "export format",
    "pramana.exporters",
    {
        "html": "pramana.report.html:html_export",
        "markdown": "pramana.report.markdown:markdown_export",
        "json": "pramana.report.exports:json_export",
        "jsonl": "pramana.report.tables:jsonl_export",
        "csv": "pramana.report.tables:csv_export",
        "parquet": "pramana.report.tables:parquet_export",
        "junit": "pramana.report.exports:junit_export",
    },
)
assertion_types = Registry(
    "assertion type",
    "pramana.assertions",
    {
        "exact_match": "pramana.assertions:exact_match",
        "contains": "pramana.assertions:contains",
        "contains_any": "pramana.assertions:contains_any",
        "is_json": "pramana.assertions:is_json",
        "llm_judge": "pramana.assertions:llm_judge",
        "semantic_similarity": "pramana.assertions:semantic_similarity",
        # Pramana's own, beyond the six of the published format.
        "regex": "pramana.assertions:regex",
        "json_schema": "pramana.assertions:json_schema",
        "contains_none": "pramana.assertions:contains_none",
    },
)
