"""The command-line interface of the service."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxbisect.errors import OptionError
from onnxbisect.terms import InputShapes, InputValues, PrecisionTerms, RepairTerms, SearchTerms, WebhookFormat, terms_of
from onnxbisect_cli import parameters
from onnxbisect_cli.help_page import SERVICE, TARGET, Command
from onnxbisect_cli.speech import Lang

if TYPE_CHECKING:
    from onnx_bisect.job_documents import Webhook

app = typer.Typer(rich_markup_mode=None)
token_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Create, list and revoke tokens of the service."
)
app.add_typer(token_app, name="token", rich_help_panel=SERVICE)
webhook_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="List webhook messages, and send one again."
)
app.add_typer(webhook_app, name="webhook", rich_help_panel=SERVICE)

#: The parameters that `run` has too.
BackendNames = Annotated[
    list[str],
    typer.Option(
        "--backend",
        "-b",
        rich_help_panel=TARGET,
        metavar="NAME",
        help="The compiler to ask; LABEL=NAME where there are several.",
    ),
]
BackendOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        rich_help_panel=TARGET,
        metavar="KEY=VALUE",
        help="An option of the backend, LABEL.KEY=VALUE of one of several.",
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant, which has its own models, jobs and verdicts.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", parser=parameters.path, help="Folder with all data of the service."),
]


@app.command(
    "serve",
    cls=Command,
    rich_help_panel=SERVICE,
    short_help="Run the service on this machine.",
    epilog="Example: onnx-bisect serve --data service",
)
def serve_command(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on, 127.0.0.1 if unset.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="8321 if unset, 0 for any.")] = None,
    data: Data = None,
    backends: Annotated[
        Path | None,
        typer.Option("--backends", metavar="DIR", help="TOML files of compilers of your own, found by their names."),
    ] = None,
) -> None:
    """Serve the API and its pages, with a worker for this machine's compilers. With ONNXBISECT_REDIS_URL set, there is
    no worker.
    """
    from onnxbisect_cli.serving import serve
    from onnxbisect_service.settings import load_settings

    if backends is not None:
        os.environ["ONNXBISECT_BACKENDS"] = str(backends.absolute())  # for the processes that read models and compile
    serve(load_settings(host=host, port=port, data=data))


@app.command(
    "worker",
    cls=Command,
    rich_help_panel=SERVICE,
    short_help="Run a worker for this host's compilers.",
    epilog="Example: onnx-bisect worker --backend qnn",
)
def worker_command(
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend", "-b", rich_help_panel=TARGET, metavar="NAME", help="A compiler of this host; repeatable."
        ),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Do the work that needs no compiler, too; at least one worker must.")
    ] = False,
    alive: Annotated[
        bool,
        typer.Option("--alive", help="Only check: exit status 0 if a worker of this host is alive."),
    ] = False,
) -> None:
    """Run a worker: take probes from the queue and compile them with this host's compilers."""
    if alive:
        from onnxbisect_cli.operating import own_database
        from onnxbisect_worker.presence import is_alive

        with own_database(None) as database:
            raise typer.Exit(0 if is_alive(database) else 1)
    from onnxbisect_service.settings import load_settings
    from onnxbisect_worker.working import work

    raise typer.Exit(work(load_settings(), backends=backend or (), control=control))


@app.command(
    "submit",
    cls=Command,
    rich_help_panel=SERVICE,
    short_help="Diagnose a model on a server.",
    epilog="Example: onnx-bisect submit model.onnx --server https://bisect.example.org --backend qnn",
)
@parameters.takes_terms
def submit_command(
    *,
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL",
            parser=parameters.path,
            help="An ONNX file; its external data is sent with it. Several, a folder of them or a manifest as in run.",
        ),
    ],
    server: Annotated[str, typer.Option("--server", envvar="ONNXBISECT_SERVER", metavar="URL", help="The server.")],
    backend: BackendNames,
    token: Annotated[
        str,
        typer.Option(
            "--token", envvar="ONNXBISECT_TOKEN", help="Better given as the variable than on the command line."
        ),
    ],
    option: BackendOptions = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    terms: SearchTerms,
    calibration: parameters.OldCalibrationPath = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Such as repo, branch, commit; repeatable."),
    ] = None,
    webhook: Annotated[
        str | None, typer.Option("--webhook", metavar="URL", help="Receives the events of this job.")
    ] = None,
    webhook_format: Annotated[
        WebhookFormat,
        typer.Option(
            "--webhook-format",
            metavar="json|feishu|dingtalk|wecom|slack|teams",
            help="What it receives: signed events, or messages of a chat.",
        ),
    ] = "json",
    webhook_secret: Annotated[
        str | None,
        typer.Option(
            "--webhook-secret",
            metavar="SECRET",
            envvar="ONNXBISECT_WEBHOOK_SECRET",
            help="That of a Feishu, Lark or DingTalk robot that checks signatures.",
        ),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Jobs with a higher priority are claimed first.")] = 0,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what is refused, as the command fix does; the options below bound it.")
    ] = False,
    repair: RepairTerms,
    find_precise: Annotated[
        bool,
        typer.Option(
            "--precision",
            help="Then find the nodes that must stay precise, as the command precision does; options below.",
        ),
    ] = False,
    precision: PrecisionTerms,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the report, or print the job's URL.")] = True,
    out: parameters.ReportsFolder = None,
    form: parameters.ReportForm = parameters.Format.TEXT,
    _lang: Lang = None,
) -> None:
    """Diagnose MODEL on a server. Output and exit status are those of run; with --fix the status is that of fix."""
    from onnx_bisect import RemoteTarget
    from onnxbisect_cli import parts, submit_job

    if not fix and replace(repair, samples=None) != RepairTerms():
        options = ", ".join(parameters.option_name(it) for it in terms_of(RepairTerms) if it.name != "samples")
        raise OptionError(f"{options} are about a repair: add --fix.")
    if not find_precise and precision != PrecisionTerms():
        options = ", ".join(map(parameters.option_name, terms_of(PrecisionTerms)))
        raise OptionError(f"{options} are about precision: add --precision.")
    samples = calibration or repair.sample_path
    found = parts.parts_of(models, input_shapes or {}, input_values or {}, samples)
    asked = parameters.chosen(backend, option or ())
    request = submit_job.SubmitRequest(
        model=found[0].model,
        server=server,
        token=token,
        targets=asked,
        input_shapes=found[0].input_shapes,
        input_values=found[0].input_values,
        calibration=found[0].calibration,
        terms={
            "targets": [RemoteTarget(backend=target.backend, options=target.options) for target in asked],
            "labels": parameters.key_values(label or (), "--label"),
            "webhook": _webhook(webhook, webhook_format, webhook_secret),
            "priority": priority,
            "repair": repair if fix else None,
            "precision": precision if find_precise else None,
            **vars(terms),  # type: ignore[typeddict-item]
        },
    )
    if len(found) > 1:
        if fix or find_precise:
            flag = "--fix" if fix else "--precision"
            raise OptionError(f"{flag} is for one model: submit each of them with it.")
        from onnxbisect_cli import submit_parts

        raise typer.Exit(submit_parts.submit(request, found, wait=wait, out=out, form=form))
    raise typer.Exit(submit_job.submit(request, wait=wait, out=out, form=form))


def _webhook(url: str | None, form: WebhookFormat, secret: str | None) -> "Webhook | None":
    if url is None:
        if form != "json":
            raise OptionError("--webhook-format is about a webhook: add --webhook URL.")
        return None
    return {"url": url, "format": form, "secret": secret} if secret else {"url": url, "format": form}


@app.command(
    "settings",
    cls=Command,
    rich_help_panel=SERVICE,
    short_help="Show the settings of the service.",
    epilog="Example: onnx-bisect settings",
)
def settings_command() -> None:
    """Show the settings of the service (ONNXBISECT_* in the environment), without secrets."""
    from onnxbisect_cli import operating

    operating.show_settings()


@app.command(
    "migrate",
    cls=Command,
    rich_help_panel=SERVICE,
    short_help="Upgrade the service's database.",
    epilog="Example: onnx-bisect migrate --data service",
)
def migrate_command(data: Data = None) -> None:
    """Upgrade the service's database to this version. Only a backup can undo this."""
    from onnxbisect_cli.operating import migrate

    migrate(data)


@app.command(
    "backup",
    cls=Command,
    rich_help_panel=SERVICE,
    short_help="Copy the service's database and files.",
    epilog="Example: onnx-bisect backup /backups/bisect --data service",
)
def backup_command(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the copy; an existing copy is updated.")],
    data: Data = None,
) -> None:
    """Copy the service's SQLite database and its files while it runs."""
    from onnxbisect_cli.operating import back_up

    back_up(data, to)


@token_app.command(
    "create",
    cls=Command,
    epilog="Example: onnx-bisect token create 'ci of repo' --data service",
)
def create_token_command(
    name: Annotated[str, typer.Argument(help="Who or what uses it, as 'ci of repo'.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, submit (which may read), admin, or operator (/metrics alone); repeatable."),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", min=0.001, max=36_500, help="Days until it expires; never if unset.")
    ] = None,
    tenant: Tenant = "",
    data: Data = None,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    from onnxbisect_cli import operating
    from onnxbisect_cli.parameters import choices
    from onnxbisect_db.states import Scope

    scopes = choices(Scope, scope or ["submit"], "--scope")
    operating.create_token(data, name, tenant=tenant, scopes=scopes, days=days)


@token_app.command(
    "list",
    cls=Command,
    epilog="Example: onnx-bisect token list --data service",
)
def list_tokens_command(tenant: Tenant = "", data: Data = None) -> None:
    """List all tokens, including revoked ones."""
    from onnxbisect_cli import operating

    operating.show_tokens(data, tenant)


@token_app.command(
    "revoke",
    cls=Command,
    epilog="Example: onnx-bisect token revoke ID --data service",
)
def revoke_token_command(
    token_id: Annotated[str, typer.Argument(metavar="ID")],
    tenant: Tenant = "",
    data: Data = None,
) -> None:
    """Revoke a token, from the next request on."""
    from onnxbisect_cli import operating

    operating.revoke_token(data, token_id, tenant=tenant)


@webhook_app.command(
    "log",
    cls=Command,
    epilog="Example: onnx-bisect webhook log --limit 5",
)
def webhook_log_command(
    tenant: Tenant = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, the newest first.")] = 20,
    data: Data = None,
) -> None:
    """List messages to webhooks, with the outcome of the last attempt."""
    from onnxbisect_cli import operating

    operating.show_webhooks(data, tenant, limit)


@webhook_app.command(
    "redeliver",
    cls=Command,
    epilog="Example: onnx-bisect webhook redeliver ID",
)
def redeliver_command(
    message_id: Annotated[str, typer.Argument(metavar="ID")],
    tenant: Tenant = "",
    data: Data = None,
) -> None:
    """Send a message again, with the same id and the whole schedule of retries."""
    from onnxbisect_cli import operating

    operating.redeliver_message(data, message_id, tenant=tenant)
