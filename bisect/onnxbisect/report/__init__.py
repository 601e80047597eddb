"""Turn a completed diagnosis into reports for people and machines.

`document` makes one JSON document, whose types are in `contents`; every other form (terminal, Markdown, HTML, JUnit,
SARIF, GitLab) is made from that document, so that none can say what another does not. Only `document` and its imports
need the model; the service's pages and `compare` read stored documents.
"""
