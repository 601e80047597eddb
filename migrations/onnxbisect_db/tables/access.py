"""Tables for access to the service and for webhooks."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from onnxbisect_db.states import DeliveryState, WebhookFormat
from onnxbisect_db.tables.base import Base, Leased, new_id


class Token(Base):
    """A right to use the service. Of the secret, only `secret_sha256` is stored.

    `tenant` owns what the token creates; verdicts are shared within a tenant.
    """

    __tablename__ = "token"

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64), default="")
    name: Mapped[str]
    secret_sha256: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]


class BrowserSession(Base):
    """A browser logged in with a token. `id` is the SHA-256 of its cookie's value."""

    __tablename__ = "browser_session"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_id: Mapped[str] = mapped_column(ForeignKey("token.id", ondelete="CASCADE"))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class Endpoint(Base):
    """A webhook endpoint. `secrets` are the signing secrets, newest first: during a rotation, both sign.

    That of a chat has the secret that the chat made, if any.
    """

    __tablename__ = "endpoint"
    __table_args__ = (Index("ix_endpoint_tenant_job_id", "tenant", "job_id"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64), default="")
    url: Mapped[str]
    secrets: Mapped[list[Any]]
    events: Mapped[list[Any]]
    format: Mapped[str] = mapped_column(String(16), default=WebhookFormat.JSON, server_default=WebhookFormat.JSON)
    #: The job, if it named a webhook of its own.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    created_at: Mapped[datetime]
    #: The first failed delivery since the last success.
    failing_since: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    #: The reason, as a sentence.
    disabled_because: Mapped[str] = mapped_column(default="")


class Delivery(Leased, Base):
    """One webhook message to one endpoint, written in the transaction of the change it is about.

    `id` is the message's id on every attempt.
    """

    __tablename__ = "delivery"
    __table_args__ = (
        Index("ix_delivery_state_due_at", "state", "due_at"),
        Index("ix_delivery_endpoint_id_id", "endpoint_id", "id"),
        Index("ix_delivery_job_id", "job_id"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoint.id", ondelete="CASCADE"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="SET NULL"))
    type: Mapped[str] = mapped_column(String(64))
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16), default=DeliveryState.PENDING)
    #: Every attempt: time, status, milliseconds, the beginning of the answer.
    tries: Mapped[list[Any]] = mapped_column(default=list)
    #: Its position in the schedule; reset by a manual redelivery.
    step: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime]
    created_at: Mapped[datetime]
