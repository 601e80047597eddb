"""The fixtures of `browser` and, for pages that need no browser, of `api_fixtures`."""

from api_fixtures import bell, callers, service, settings, tables
from browser import chromium, installation, look
from scenery import scene

__all__ = ["bell", "callers", "chromium", "installation", "look", "scene", "service", "settings", "tables"]
