"""The fixtures of `browser` and, for pages that need no browser, of `api_fixtures`."""

from support.api.fixtures import callers, notified, service, settings, tables
from support.site.browser import chromium, installation, look
from support.site.scenery import scene

__all__ = ["callers", "chromium", "installation", "look", "notified", "scene", "service", "settings", "tables"]
