"""The status page, for people: HTML from templates, updated by server-sent events.

Every page works without scripts; these add progress, movable pictures, and no waiting. `onnxbisect_api.access`
identifies a logged-in browser by its cookie, and it sees what the same token sees over REST.
"""
