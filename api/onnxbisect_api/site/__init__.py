"""The status page: what the service knows, for people. HTML from templates, brought up to date over server-sent events.

Every page works without scripts; what these add is progress, pictures that can be moved, and no waiting. Whoever has
logged in is told from his cookie by `onnxbisect_api.access`, and sees what the same token sees over REST.
"""
