"""The settings of an installation, from environment variables `ONNXBISECT_*`; one class for all processes."""

import ctypes
import re
import sys
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from onnxbisect.errors import OptionError
from onnxbisect_backends.options import reason
from onnxbisect_service.outbound import Allowed

_SECRETS = Path("/run/secrets")
#: URL schemes of redis; redis-py's `unix` is celery's `redis+socket`.
_REDIS = ("redis", "rediss", "redis+socket", "unix")
#: A hundred years in days; dates have an upper limit.
_CENTURY = 36_500


class Settings(BaseSettings):
    """The settings. Each field is read from the environment variable `ONNXBISECT_` and its name in capitals.

    Secrets may also be files of the variable's name in lower case, in `/run/secrets`.
    """

    model_config = SettingsConfigDict(
        env_prefix="ONNXBISECT_", extra="ignore", secrets_dir=_SECRETS if _SECRETS.is_dir() else None
    )

    data: Path = Field(default=user_data_path("onnx-bisect"), description="folder for files, and for SQLite's database")
    work: Path | None = Field(
        default=None, description="folder of this machine's workers alone; in the data folder if unset"
    )
    database_url: SecretStr | None = Field(
        default=None, description="PostgreSQL or SQLite; SQLite in the data folder if unset"
    )
    files: str | None = Field(
        default=None, description="s3://BUCKET/PREFIX for models and reports; in the data folder if unset"
    )
    backends: Path | None = Field(
        default=None, description="folder with TOML files of compilers of your own, for the API and workers alike"
    )
    redis_url: SecretStr | None = Field(default=None, description="the queue; without it one process does everything")
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8321, ge=0, le=65535, description="port to listen on; 0 for any that is free")
    public_url: str | None = Field(default=None, description="where clients reach the service, for links in messages")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="hosts that requests may name, as bisect.example.org,*.lan; any if unset"
    )
    connections: int = Field(default=512, ge=8, description="connections that the API has open at a time")
    address_connections: int = Field(
        default=128, ge=4, description="connections from one address, but a trusted proxy's"
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="proxies whose X-Forwarded-For and -Proto count, as 127.0.0.1,10.0.0.0/8"
    )
    log_format: Literal["text", "json"] = Field(default="text", description="how log lines look")

    slots: int = Field(default=2, ge=1, le=256, description="compiles that one worker runs at a time")
    compile_seconds: float = Field(default=600, gt=0, description="the longest that one compile may take")
    compile_memory: int | None = Field(
        default=None, gt=0, description="bytes of memory of one compile, children included"
    )
    compiler_env: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="further variables that compilers may see, as FOO_LICENSE,BAR_HOME"
    )
    isolation: Literal["auto", "none", "required"] = Field(
        default="auto", description="whether models are read and compiled in isolation: where the kernel allows it"
    )
    model_seconds: float = Field(
        default=900, gt=0, description="the longest that reading a model, or its report, may take"
    )
    model_memory: int = Field(default=8 << 30, gt=0, description="bytes of memory of a process that reads models")
    lease_seconds: float = Field(
        default=30, gt=0, le=300, description="after how long a silent worker is given up for dead"
    )
    reconcile_seconds: float = Field(default=2, gt=0, description="how often what was dropped is looked for")
    model_cache: int = Field(
        default=20 << 30,
        ge=0,
        description="bytes of models with external data, and as many of files from a bucket, that are kept",
    )

    upload_bytes: int = Field(default=16 << 30, gt=0, description="the largest file that may be uploaded")
    disk_floor: int = Field(default=1 << 30, ge=0, description="bytes of the data folder's disk that stay free")
    nodes: int = Field(default=200_000, gt=0, description="nodes of the largest model that is taken")
    tenant_bytes: int = Field(default=64 << 30, gt=0, description="bytes of uploads that one tenant may keep here")
    tenant_webhooks: int = Field(default=20, ge=0, description="webhooks of one tenant, besides those of its jobs")
    tenant_jobs: int = Field(default=1000, gt=0, description="jobs of one tenant that may wait or run at a time")
    tenant_tokens: int = Field(default=100, gt=0, description="valid tokens of one tenant")
    requests: str = Field(default="6000/minute", description="requests of one tenant")
    uploads: str = Field(default="600/minute", description="uploads and new jobs of one tenant")
    tenant_uploads: int = Field(default=8, gt=0, description="uploads that one tenant has open at a time")
    open_uploads: int = Field(default=32, gt=0, description="uploads that the API has open at a time")
    tenant_streams: int = Field(
        default=256, gt=0, description="event streams, and waits for jobs, that one tenant has open at a time"
    )
    failures: str = Field(default="20/minute", description="wrong tokens from one address")

    webhook_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="private hosts and networks that webhooks may go to, as 10.0.0.0/8,ci.local"
    )
    webhook_seconds: float = Field(default=20, gt=0, le=300, description="how long a receiver may take")

    keep_jobs_days: float | None = Field(
        default=None, gt=0, le=_CENTURY, description="after how many days ended jobs are deleted"
    )
    keep_models_days: float | None = Field(
        default=None, gt=0, le=_CENTURY, description="after how many days unused models are deleted"
    )

    @field_validator("webhook_allow", "compiler_env", "trusted_proxies", "allowed_hosts", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("data", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if value == "":
            raise ValueError("it is empty: name a folder, or leave it out")
        return value

    @field_validator("files")
    @classmethod
    def _bucket(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/.*)?", value) is None:
            raise ValueError("it must be s3://BUCKET or s3://BUCKET/PREFIX; leave it out for the data folder")
        return value

    @field_validator("webhook_allow")
    @classmethod
    def _understood(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        Allowed.read(value)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            ip_network(each)  # its ValueError names what is wrong
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if "/" in host or ":" in host or "*" in host.removeprefix("*."):
                raise ValueError(f"{host!r} is no host: write bisect.example.org, or *.example.org, without a port")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        url = value.get_secret_value()
        try:
            parts = urlsplit(url)
            is_redis = parts.scheme in _REDIS and parts.port != 0
        except ValueError:  # a port that is no number
            is_redis = False
        if not is_redis:  # the URL is not repeated, because it may contain a password
            raise ValueError("it must be redis://HOST:PORT/0, rediss:// for TLS, or unix:///PATH of a socket")
        return SecretStr(url.replace("unix://", "redis+socket://", 1))

    @field_validator("public_url")
    @classmethod
    def _public(cls, value: str | None) -> str | None:
        if value is not None and "@" in urlsplit(value).netloc:
            raise ValueError("it must have no user and no password: all links have it in them")
        return value

    @property
    def is_https(self) -> bool:
        """Whether clients reach the service over TLS."""
        return (self.public_url or "").lower().startswith("https:")

    @property
    def database(self) -> str:
        """The database's URL."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data.absolute() / 'onnx-bisect.sqlite'}"

    @property
    def broker(self) -> str:
        """The queue's URL in Celery's form."""
        return "memory://" if self.redis_url is None else self.redis_url.get_secret_value()

    @property
    def files_folder(self) -> Path:
        """The folder of uploads and reports, unless `files` names a bucket."""
        return self.data / "files"

    @property
    def cache(self) -> Path:
        """A worker's disposable files: models with their external data, and working folders."""
        return self.work or self.data / "work"

    @property
    def keep_jobs(self) -> timedelta | None:
        """How long ended jobs are kept; None for ever."""
        return None if self.keep_jobs_days is None else timedelta(days=self.keep_jobs_days)

    @property
    def keep_models(self) -> timedelta | None:
        """How long unused models are kept; None for ever."""
        return None if self.keep_models_days is None else timedelta(days=self.keep_models_days)


def load_settings(**given: Any) -> Settings:
    """The settings of this process's environment, overridden by `given` values that are not None. OptionError names the
    wrong variable.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        raise OptionError(f"ONNXBISECT_{name.upper()} is wrong: {reason(first['msg'])}.") from None


_PR_SET_DUMPABLE = 4


def keep_secrets() -> None:
    """Make this process undumpable: only root can read its memory, environment and descriptors, and it writes no core.

    Forked processes inherit this; executed programs, such as compilers, do not. It works on Linux and does nothing
    elsewhere.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
