"""Logging in, staying in, and who is kept out."""

from playwright.sync_api import Browser

from support.api.callers import Callers
from support.site.browser import Installation


def test_without_a_token_every_page_leads_to_the_login_and_back(callers: Callers) -> None:
    answer = callers.nobody().get("/jobs?state=done", headers={"accept": "text/html"}, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Ddone"


def test_rest_still_answers_with_a_problem_document(callers: Callers) -> None:
    answer = callers.nobody().get("/v1/jobs")
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")


def test_whoever_logs_in_lands_where_he_was_going_and_scripts_cannot_read_the_token(
    chromium: Browser, installation: Installation
) -> None:
    with chromium.new_context(base_url=installation.url) as context:
        page = context.new_page()
        page.goto("/backends")
        page.get_by_label("Token").fill(installation.token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/backends")
        assert page.evaluate("document.cookie") == ""


def test_the_address_that_serve_prints_logs_in_and_leaves_no_token_in_the_history(
    chromium: Browser, installation: Installation
) -> None:
    with chromium.new_context(base_url=installation.url) as context:
        page = context.new_page()
        page.goto(f"/login#{installation.token}")
        page.wait_for_url("**/jobs")
        page.go_back()
        assert "obk_" not in page.url


def test_another_site_cannot_use_the_cookie_to_change_anything(installation: Installation) -> None:
    with installation.client() as client:
        client.headers.pop("authorization")
        client.post("/login", data={"token": installation.token}, headers={"origin": installation.url})
        assert client.get("/v1/tokens").status_code == 200
        made = {"name": "ci", "scopes": ["read"]}
        for headers in ({}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert client.post("/v1/tokens", json=made, headers=headers).status_code == 403
        assert client.post("/v1/tokens", json=made, headers={"origin": installation.url}).status_code == 201


def test_a_login_leads_nowhere_else(callers: Callers) -> None:
    nobody = callers.nobody()
    for onward in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/%2fevil.example",
    ):
        assert 'name="next" value="/jobs"' in nobody.get("/login", params={"next": onward}).text


def test_a_wrong_token_is_told(callers: Callers) -> None:
    answer = callers.nobody().post("/login", data={"token": "obk_x_y"}, headers={"origin": "http://service.test"})
    assert answer.status_code == 401
    assert "unknown, expired or revoked" in answer.text
    assert "set-cookie" not in answer.headers
