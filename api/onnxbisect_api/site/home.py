"""The root: where the jobs are."""

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

router = APIRouter()


@router.get("/")
def home() -> RedirectResponse:
    """To the list of jobs."""
    return RedirectResponse("/jobs", 303)
