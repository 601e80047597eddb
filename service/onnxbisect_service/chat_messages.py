"""Events as messages of chats: Feishu and Lark, DingTalk, WeCom, Slack, Teams. Pure functions of an event.

Names of models and nodes and compilers' words are hostile, so they stand only where a chat shows plain text: no name
becomes a link, a mention or a picture. `docs/webhooks.md` has the vendors' documents.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from onnxbisect.language import marked
from onnxbisect.report.text import clip, plural
from onnxbisect.verdict import Status
from onnxbisect_db.events import FinishedJob, FinishedTarget
from onnxbisect_db.states import EventType, WebhookFormat

#: Bytes of a message's text: WeCom takes 2048, and others more.
_TEXT = 1800
#: Characters of its first line, and of others: Slack takes 150 in a header.
_TITLE, _LINE = 140, 240
_OPEN = "Open the job"
_VERDICTS = {"pass": "compiles", "fail": "does not compile"}
_UNKNOWN = "has no verdict"


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """What is sent: the body as JSON, and what is added to the query of the URL."""

    body: Mapping[str, Any]
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Said:
    """An event for people. `good` is None for what is neither good nor bad; `page` is None without a public URL."""

    title: str
    text: str
    good: bool | None
    page: str | None


def chat_message(form: WebhookFormat, payload: Mapping[str, Any], *, secret: str | None, at: datetime) -> ChatMessage:
    """The message of an event, signed at that time if the chat gave a secret. `form` is that of a chat."""
    data: Mapping[str, Any] = payload["data"]
    title, good, lines = _words(EventType(payload["type"]), data)
    labels = ", ".join(f"{name}: {value}" for name, value in data.get("labels", {}).items())
    said = _Said(
        title=clip(f"onnx-bisect: {title}", _TITLE),
        text=_fitting([*lines, *([labels] if labels else [])]) or "—",
        good=good,
        page=data.get("page"),
    )
    chat = _CHATS[form]
    message = ChatMessage(body=chat.body(said))
    return message if secret is None else chat.signed(message, secret, at)


def refusal(form: WebhookFormat, answer: str) -> str:
    """Why a chat did not take a message that it answered with status 2xx; empty if it did.

    Feishu, DingTalk and WeCom answer 200 in any case, and say in a JSON object what went wrong.
    """
    codes = _CHATS[form].codes if form in _CHATS else None
    if codes is None:
        return ""
    code, words = codes
    try:
        said = json.loads(answer)
        number = said[code]
    except (ValueError, KeyError, TypeError):
        return f"It does not answer as {LABELS[form]} does: is the format right?"
    return "" if number == 0 else clip(f"{LABELS[form]} refuses it: {number} {said.get(words, '')}", 300)


def _words(kind: EventType, data: Mapping[str, Any]) -> tuple[str, bool | None, list[str]]:
    """The title, whether it is good news, and the lines."""
    model = data.get("model", "a job")
    match kind:
        case EventType.JOB_FINISHED:
            targets = FinishedJob.model_validate({"targets": data.get("targets", ())}).targets
            good = {"pass": True, "fail": False}.get(data["verdict"])
            lines = [line for target in targets for line in _of_target(target)]
            if len(targets) == 1 and targets[0].headline:
                return targets[0].headline, good, lines[1:] if len(lines) > 1 else lines
            return f"{model}: {_counted([target.verdict for target in targets])}", good, lines
        case EventType.JOB_FAILED:
            return f"the job of {model} is {data['state']}", False, [data["problem"]]
        case EventType.JOB_STARTED:
            return f"{model} is being searched", None, []
        case EventType.JOB_REPAIRED:
            verdict = _VERDICTS.get(data["verdict"], _UNKNOWN)
            counts = f"{plural(data['changes'], 'change')}, {plural(data['left'], 'place')} left"
            title = f"the repaired {model} {verdict}"
            return title, data["verdict"] == "pass", [f"target {data['target']}: {data['problem'] or counts}"]
        case EventType.JOB_MEASURED:
            said = data["problem"] or data["headline"]
            return f"the precision of {model} is measured", None, [f"target {data['target']}: {said}"]
        case EventType.CULPRIT_FOUND:
            culprit = data["culprit"]
            ops = " + ".join(culprit["ops"][:8])
            return f"a culprit in {model}", None, [f"{ops}: {culprit.get('message', '')}"]
        case EventType.CULPRIT_FIXED | EventType.CULPRIT_RETURNED:
            fixed, culprit = kind is EventType.CULPRIT_FIXED, data["culprit"]
            ops = " + ".join(culprit["ops"][:8])
            who = f"{data['backend']} {data['version']}"
            return f"{ops} {'is taken again' if fixed else 'fails again'}", fixed, [f"{who}: {culprit['message']}"]
    return "messages arrive here", None, ["This is a test message."]


def _of_target(target: FinishedTarget) -> Iterator[str]:
    yield target.headline or f"{target.backend}: {target.problem or target.verdict or 'no verdict'}"
    for row in target.refused:
        why = f"{row.cause} ({row.message})" if row.cause else row.message
        yield f"- {' + '.join(row.ops[:8])} at {plural(row.places, 'place')}: {why}"
    if target.more:
        yield f"- and {target.more} more"
    if target.repaired is not None:
        yield f"The repaired model {_VERDICTS.get(target.repaired, _UNKNOWN)}."
    if target.precision:
        yield f"Precision: {target.precision}"


def _counted(verdicts: Sequence[Status | None]) -> str:
    """`2 of 3 targets fail`, `compiles for 3 targets`, `no verdict`."""
    failing = verdicts.count(Status.FAIL)
    if failing:
        return f"{failing} of {plural(len(verdicts), 'target')} {'fails' if failing == 1 else 'fail'}"
    return (
        f"compiles for {plural(len(verdicts), 'target')}"
        if verdicts.count(Status.PASS) == len(verdicts)
        else "no verdict"
    )


def _fitting(lines: list[str]) -> str:
    """The lines that fit, and `…` if some do not."""
    kept: list[str] = []
    room = _TEXT
    for line in lines:
        shown = clip(line, _LINE)
        room -= len(shown.encode()) + 1
        if room < 0:
            return "\n".join([*kept, "…"])
        kept.append(shown)
    return "\n".join(kept)


class _Chat:
    """How a chat takes messages."""

    #: The fields of an answer that have the error's number, 0 for none, and its words.
    codes: tuple[str, str] | None = None
    #: Whether its robots may have a secret, which the chat makes.
    has_secret = False

    def body(self, said: _Said) -> dict[str, Any]:
        """The message as JSON."""
        raise NotImplementedError

    def signed(self, message: ChatMessage, secret: str, at: datetime) -> ChatMessage:
        """The message with what proves that its sender has the secret."""
        raise NotImplementedError


class _Feishu(_Chat):
    codes = ("code", "msg")
    has_secret = True

    def body(self, said: _Said) -> dict[str, Any]:
        elements: list[dict[str, Any]] = [{"tag": "div", "text": {"tag": "plain_text", "content": said.text}}]
        if said.page:
            words = {"tag": "plain_text", "content": _OPEN}
            button = {"tag": "button", "text": words, "type": "primary", "url": said.page}
            elements.append({"tag": "action", "actions": [button]})
        colour = {True: "green", False: "red", None: "blue"}[said.good]
        header = {"template": colour, "title": {"tag": "plain_text", "content": said.title}}
        return {"msg_type": "interactive", "card": {"header": header, "elements": elements}}

    def signed(self, message: ChatMessage, secret: str, at: datetime) -> ChatMessage:
        """In the body: the HMAC of nothing, under time and secret as the key."""
        seconds = str(int(at.timestamp()))
        sign = base64.b64encode(hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()).decode()
        return ChatMessage(body={"timestamp": seconds, "sign": sign, **message.body})


class _WeCom(_Chat):
    codes = ("errcode", "errmsg")

    def body(self, said: _Said) -> dict[str, Any]:
        # it reads <@name> as a mention, also in plain text
        text = "\n".join([said.title, said.text, *([said.page] if said.page else [])]).replace("<@", "< @")
        return {"msgtype": "text", "text": {"content": text}}


class _DingTalk(_WeCom):
    has_secret = True

    def body(self, said: _Said) -> dict[str, Any]:
        return {**super().body(said), "at": {"isAtAll": False}}

    def signed(self, message: ChatMessage, secret: str, at: datetime) -> ChatMessage:
        """In the query: the HMAC of time and secret, under the secret as the key."""
        milliseconds = str(int(at.timestamp() * 1000))
        digest = hmac.new(secret.encode(), f"{milliseconds}\n{secret}".encode(), hashlib.sha256).digest()
        sign = base64.b64encode(digest).decode()
        return ChatMessage(body=message.body, query={"timestamp": milliseconds, "sign": sign})


class _Slack(_Chat):
    def body(self, said: _Said) -> dict[str, Any]:
        def plain(text: str) -> dict[str, Any]:
            return {"type": "plain_text", "text": text, "emoji": False}

        blocks: list[dict[str, Any]] = [
            {"type": "header", "text": plain(said.title)},
            {"type": "section", "text": plain(said.text)},
        ]
        if said.page:
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{said.page}|{_OPEN}>"}})
        # what notifications show is read as markup
        title = said.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return {"text": title, "blocks": blocks}


class _Teams(_Chat):
    def body(self, said: _Said) -> dict[str, Any]:
        def block(text: str, **how: str) -> dict[str, Any]:
            # of all elements only TextRun reads no Markdown
            return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **how}]}

        colour = {True: "good", False: "attention", None: "default"}[said.good]
        card: dict[str, Any] = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": [
                block(said.title, weight="bolder", size="medium", color=colour),
                *(block(line) for line in said.text.splitlines()),
            ],
        }
        if said.page:
            card["actions"] = [{"type": "Action.OpenUrl", "title": _OPEN, "url": said.page}]
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [attachment]}


#: The chats as people name them.
LABELS: Mapping[WebhookFormat, str] = {
    WebhookFormat.JSON: marked("signed JSON"),
    WebhookFormat.FEISHU: marked("Feishu or Lark"),
    WebhookFormat.DINGTALK: "DingTalk",
    WebhookFormat.WECOM: "WeCom",
    WebhookFormat.SLACK: "Slack",
    WebhookFormat.TEAMS: "Microsoft Teams",
}
_CHATS: Mapping[WebhookFormat, _Chat] = {
    WebhookFormat.FEISHU: _Feishu(),
    WebhookFormat.DINGTALK: _DingTalk(),
    WebhookFormat.WECOM: _WeCom(),
    WebhookFormat.SLACK: _Slack(),
    WebhookFormat.TEAMS: _Teams(),
}
#: The chats whose robots may have a secret, which the chat makes.
WITH_SECRET = frozenset(form for form, chat in _CHATS.items() if chat.has_secret)
