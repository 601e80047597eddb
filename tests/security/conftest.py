"""The fixtures of `api_fixtures`."""

from api_fixtures import bell, callers, service, settings, tables

__all__ = ["bell", "callers", "service", "settings", "tables"]
