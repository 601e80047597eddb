"""The fixtures of `api_fixtures`."""

from support.api.fixtures import bell, callers, service, settings, tables

__all__ = ["bell", "callers", "service", "settings", "tables"]
