"""The fixtures of `browser` and, for pages that need no browser, of `api_fixtures`."""

from api_fixtures import bell, callers, service, settings, tables
from browser import chromium, installation, look

__all__ = ["bell", "callers", "chromium", "installation", "look", "service", "settings", "tables"]
