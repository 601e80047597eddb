"""The fixtures of `api_fixtures`."""

from support.api.fixtures import callers, notified, service, settings, tables

__all__ = ["callers", "notified", "service", "settings", "tables"]
