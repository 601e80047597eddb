"""Hosts as child processes: `hosting.Host` and `hosting.Hosts` for everybody who works on searches."""

from contextlib import AbstractContextManager

from onnxbisect_db.files import Files
from onnxbisect_worker.hosting import Case, Host
from onnxbisect_worker.settings import Settings


class ModelHosts:
    """The hosts of this process. Nothing starts before a host is asked for something."""

    def __init__(self, settings: Settings, files: Files) -> None:
        self._settings = settings
        self._files = files

    def lent(self, case: Case) -> AbstractContextManager[Host]:
        """See `Hosts.lent`."""
        raise NotImplementedError

    def close(self) -> None:
        """See `Hosts.close`."""
