"""Clients of an application in this process, each with a token of its own."""

from starlette.testclient import TestClient

from onnxbisect_api.app import create_app
from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service
from onnxbisect_worker.model_processes.pool import inspection


class Callers:
    """They all speak to one application."""

    def __init__(self, service: Service) -> None:
        self.app = create_app(service, inspect_model=inspection)
        self._service = service

    def nobody(self, authorization: str | None = None) -> TestClient:
        """Somebody without a token, or with whatever is said."""
        headers = {"Authorization": authorization} if authorization is not None else {}
        return TestClient(self.app, base_url="http://service.test", headers=headers, raise_server_exceptions=False)

    def token(self, scope: Scope, tenant: str = "") -> str:
        """A new token's text."""
        with self._service.database.transaction() as session:
            return tokens.issue(session, tenant=tenant, name="test", scopes=(scope,)).text

    def reader(self, tenant: str = "") -> TestClient:
        return self.nobody(f"Bearer {self.token(Scope.READ, tenant)}")

    def submitter(self, tenant: str = "") -> TestClient:
        return self.nobody(f"Bearer {self.token(Scope.SUBMIT, tenant)}")

    def admin(self, tenant: str = "") -> TestClient:
        return self.nobody(f"Bearer {self.token(Scope.ADMIN, tenant)}")

    def operator(self) -> TestClient:
        return self.nobody(f"Bearer {self.token(Scope.OPERATOR)}")
