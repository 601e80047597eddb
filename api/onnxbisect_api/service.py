"""Gives routes the `Service` of their application."""

from typing import Annotated

from fastapi import Depends, Request

from onnxbisect_service.service import Service


def service_of(request: Request) -> Service:
    """The application's service."""
    service: Service = request.app.state.service
    return service


#: A route's parameter of this type is the application's service.
TheService = Annotated[Service, Depends(service_of)]
