"""The fixtures of `browser` and, for pages that need no browser, of `api_fixtures`."""

from support.api.fixtures import bell, callers, service, settings, tables
from support.site.browser import chromium, installation, look
from support.site.scenery import scene

__all__ = ["bell", "callers", "chromium", "installation", "look", "scene", "service", "settings", "tables"]
