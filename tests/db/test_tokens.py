"""Tokens: shown once, good until they are not, and nothing of them in the database."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from onnxbisect_db import tokens
from onnxbisect_db.database import Database
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token
from onnxbisect_db.tokens import Issued
from support.db.scenes import Clock


def issue(database: Database, *scopes: Scope, seconds: float | None = None, clock: Clock | None = None) -> Issued:
    ends = None if clock is None or seconds is None else clock.at + timedelta(seconds=seconds)
    with database.transaction() as session:
        return tokens.issue(session, tenant="t", name="ci", scopes=scopes or (Scope.SUBMIT,), expires_at=ends)


def check(database: Database, said: str) -> Token | None:
    with database.session() as session:
        return tokens.check(session, said)


def test_a_token_is_who_it_was_made_for(database: Database) -> None:
    issued = issue(database)
    assert issued.text.startswith("obk_")
    found = check(database, issued.text)
    assert found is not None
    assert (found.id, found.tenant, found.name) == (issued.token.id, "t", "ci")
    assert issued.text not in repr(issued)


def test_the_secret_is_not_in_the_database(database: Database) -> None:
    secret = issue(database).text.rpartition("_")[2]
    with database.session() as session:
        row = session.execute(text("SELECT * FROM token")).one()
    assert secret not in str(row)
    assert len(secret) == 64


@pytest.mark.parametrize(
    "spoil", ["", "obk", "obk_", "obk__", "obk_x_y", "obk_" + "0" * 32 + "_" + "0" * 64, "é_\ud800_"]
)
def test_what_is_no_token_is_nobody(database: Database, spoil: str) -> None:
    issue(database)
    assert check(database, spoil) is None


def test_a_changed_token_is_nobody(database: Database) -> None:
    mine, other = issue(database).text, issue(database).text
    last = "0" if mine[-1] != "0" else "1"
    for wrong in (mine[:-1] + last, mine[:-1], mine + "0", "xxx" + mine[3:], mine[:37] + other[37:], mine.upper()):
        assert check(database, wrong) is None


def test_a_token_ends(database: Database, clock: Clock) -> None:
    issued = issue(database, seconds=60, clock=clock)
    clock.forward(59)
    assert check(database, issued.text) is not None
    clock.forward(1)
    assert check(database, issued.text) is None


def test_a_revoked_token_is_nobody_and_stays_listed(database: Database) -> None:
    issued = issue(database)
    with database.transaction() as session:
        assert tokens.revoke(session, issued.token.id, "stranger") is None
    assert check(database, issued.text) is not None
    with database.transaction() as session:
        assert tokens.revoke(session, issued.token.id, "t") is not None
    assert check(database, issued.text) is None
    with database.session() as session:
        assert [token.revoked_at is not None for token in tokens.list_all(session, "t")] == [True]
        assert tokens.list_all(session, "stranger") == []


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        (Scope.READ, {Scope.READ}),
        (Scope.SUBMIT, {Scope.READ, Scope.SUBMIT}),
        (Scope.ADMIN, {Scope.READ, Scope.SUBMIT, Scope.ADMIN}),
    ],
)
def test_scopes_allow_what_they_say(database: Database, held: Scope, allowed: set[Scope]) -> None:
    token = issue(database, held).token
    assert {scope for scope in Scope if tokens.allows(token, scope)} == allowed


def test_using_it_is_noted_once_a_minute(database: Database, clock: Clock) -> None:
    issued = issue(database)
    noted = []
    for _ in range(3):
        with database.transaction() as session:
            tokens.note_use(session, issued.token.id)
        with database.session() as session:
            noted.append(session.get_one(Token, issued.token.id).used_at)
        clock.forward(40)
    assert noted[0] == noted[1] != noted[2]


def test_a_seal_is_for_one_text_of_one_token(database: Database, clock: Clock) -> None:
    mine, other = issue(database, seconds=60, clock=clock).token, issue(database).token
    word = tokens.seal(mine, "repo:net")

    def sealed(token: Token, text: str, word: str) -> bool:
        with database.session() as session:
            return tokens.token_of_seal(session, token.id, text, word) is not None

    assert sealed(mine, "repo:net", word)
    assert not sealed(mine, "repo:other", word)
    assert not sealed(other, "repo:net", word)
    assert not sealed(mine, "repo:net", "é" + word)
    clock.forward(61)
    assert not sealed(mine, "repo:net", word)


def test_a_seal_ends_with_its_token(database: Database) -> None:
    token = issue(database).token
    word = tokens.seal(token, "repo:net")
    with database.transaction() as session:
        tokens.revoke(session, token.id, "t")
    with database.session() as session:
        assert tokens.token_of_seal(session, token.id, "repo:net", word) is None
