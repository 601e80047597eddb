"""Access to the service for routes."""

from typing import Annotated

from fastapi import Depends, Request

from onnxbisect_service.service import Service


def service_of(request: Request) -> Service:
    """The application's service."""
    service: Service = request.app.state.service
    return service


#: A parameter of this type is the service.
TheService = Annotated[Service, Depends(service_of)]
