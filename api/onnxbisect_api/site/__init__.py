"""The HTML pages of the service, made from templates and updated by server-sent events.

Every page works without scripts, which only add live progress, interactive pictures and uploads in the background.
`onnxbisect_api.access` identifies a logged-in browser by its cookie. The browser has the rights of the token of its
login.
"""
