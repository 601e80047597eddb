"""The commands of the service: what can be typed."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)
token_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Who may use the service.")
app.add_typer(token_app, name="token")

Tenant = Annotated[str, typer.Option("--tenant", help="Whose: models, jobs and verdicts are a tenant's own.")]


@app.command("settings")
def settings_command() -> None:
    """Show the settings of the service (ONNXBISECT_* in the environment), without secrets."""
    from onnxbisect_cli import service_settings

    service_settings.show()


@app.command("migrate")
def migrate_command() -> None:
    """Bring the service's database to this version; there is no way back but a backup."""
    from onnxbisect_db.database import Database
    from onnxbisect_worker.settings import load_settings

    database = Database(load_settings().database)
    database.upgrade()
    print(f"The database is at version {database.revision()}.")
    database.close()


@token_app.command("create")
def create_token_command(
    name: Annotated[str, typer.Argument(help="What it is for, as 'ci of repo'.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, submit (which may read) or admin; repeatable.")
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", min=0.001, help="How long it is good; for ever if unset.")
    ] = None,
    tenant: Tenant = "",
) -> None:
    """Print a new token. It is shown this once."""
    from onnxbisect_cli import service_tokens
    from onnxbisect_cli.arguments import choices
    from onnxbisect_db.states import Scope

    scopes = choices(Scope, scope or ["submit"], "--scope")
    service_tokens.create(name, tenant=tenant, scopes=scopes, days=days)


@token_app.command("list")
def list_tokens_command(tenant: Tenant = "") -> None:
    """List tokens, revoked ones, too."""
    from onnxbisect_cli import service_tokens

    service_tokens.show(tenant)


@token_app.command("revoke")
def revoke_token_command(
    token_id: Annotated[str, typer.Argument(metavar="ID")],
    tenant: Tenant = "",
) -> None:
    """End a token, from the next request on."""
    from onnxbisect_cli import service_tokens

    service_tokens.revoke(token_id, tenant=tenant)
