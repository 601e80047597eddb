"""What the vendors' documents say of messages to their chats, as JSON schemas; each names its document."""

from typing import Any

from onnxbisect_db.states import WebhookFormat


def text(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most}


def exactly(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "required": [*required],
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


# https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot ("send message cards": msg_type, card, timestamp and
# sign) and https://open.feishu.cn/document/common-capabilities/message-card/message-cards-content (header, div, button)
_FEISHU_TEXT = exactly({"tag": {"const": "plain_text"}, "content": text(10_000)})
_FEISHU_COLOURS = ["blue", "wathet", "turquoise", "green", "yellow", "orange", "red", "carmine", "violet", "grey"]
FEISHU = exactly(
    {
        "msg_type": {"const": "interactive"},
        "card": exactly(
            {
                "header": exactly({"title": _FEISHU_TEXT}, template={"enum": _FEISHU_COLOURS}),
                "elements": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "oneOf": [
                            exactly({"tag": {"const": "div"}, "text": _FEISHU_TEXT}),
                            exactly(
                                {
                                    "tag": {"const": "action"},
                                    "actions": {
                                        "type": "array",
                                        "items": exactly(
                                            {"tag": {"const": "button"}, "text": _FEISHU_TEXT, "url": text(2000)},
                                            type={"enum": ["default", "primary", "danger"]},
                                        ),
                                    },
                                }
                            ),
                        ]
                    },
                },
            }
        ),
    },
    timestamp={"type": "string", "pattern": "^[0-9]{10}$"},
    sign={"type": "string", "pattern": "^[A-Za-z0-9+/]{43}=$"},
)
# https://open.dingtalk.com/document/orgapp/custom-robot-access and …/document/development/robot-message-type ("text")
_STRINGS = {"type": "array", "items": {"type": "string"}}
DINGTALK = exactly(
    {"msgtype": {"const": "text"}, "text": exactly({"content": text(20_000)})},
    at=exactly({}, atMobiles=_STRINGS, atUserIds=_STRINGS, isAtAll={"const": False}),
)
# https://developer.work.weixin.qq.com/document/path/91770 ("text": at most 2048 bytes of UTF-8)
WECOM = exactly({"msgtype": {"const": "text"}, "text": exactly({"content": text(2048)})})
# https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks (text, blocks), and below
# https://docs.slack.dev/reference/block-kit/ blocks/header-block (150 characters), blocks/section-block and
# composition-objects/text-object (3000)
_SLACK_PLAIN = {"type": {"const": "plain_text"}, "text": text(3000)}
_SLACK_EMOJI = {"type": "boolean"}
SLACK = exactly(
    {
        "text": text(40_000),
        "blocks": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "oneOf": [
                    exactly(
                        {
                            "type": {"const": "header"},
                            "text": exactly({**_SLACK_PLAIN, "text": text(150)}, emoji=_SLACK_EMOJI),
                        }
                    ),
                    exactly(
                        {
                            "type": {"const": "section"},
                            "text": {
                                "oneOf": [
                                    exactly(_SLACK_PLAIN, emoji=_SLACK_EMOJI),
                                    exactly({"type": {"const": "mrkdwn"}, "text": text(3000)}),
                                ]
                            },
                        }
                    ),
                ]
            },
        },
    }
)
# https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using (the message:
# "send Adaptive Cards using an Incoming Webhook", which Workflows take), https://adaptivecards.io/explorer/ (the card,
# 1.4) and https://learn.microsoft.com/adaptive-cards/schema-explorer/text-run ("Markdown is not supported")
_TEAMS_RUN = exactly(
    {"type": {"const": "TextRun"}, "text": text(3000)},
    weight={"enum": ["lighter", "default", "bolder"]},
    size={"enum": ["small", "default", "medium", "large", "extraLarge"]},
    color={"enum": ["default", "dark", "light", "accent", "good", "warning", "attention"]},
)
_TEAMS_CARD = exactly(
    {
        "$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"},
        "type": {"const": "AdaptiveCard"},
        "version": {"enum": ["1.2", "1.3", "1.4", "1.5"]},
        "body": {
            "type": "array",
            "minItems": 1,
            "items": exactly(
                {"type": {"const": "RichTextBlock"}, "inlines": {"type": "array", "items": _TEAMS_RUN, "minItems": 1}}
            ),
        },
    },
    actions={
        "type": "array",
        "items": exactly({"type": {"const": "Action.OpenUrl"}, "url": text(2000)}, title=text(100)),
    },
)
TEAMS = exactly(
    {
        "type": {"const": "message"},
        "attachments": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": exactly(
                {
                    "contentType": {"const": "application/vnd.microsoft.card.adaptive"},
                    "contentUrl": {"type": "null"},
                    "content": _TEAMS_CARD,
                }
            ),
        },
    }
)
SCHEMAS = {
    WebhookFormat.FEISHU: FEISHU,
    WebhookFormat.DINGTALK: DINGTALK,
    WebhookFormat.WECOM: WECOM,
    WebhookFormat.SLACK: SLACK,
    WebhookFormat.TEAMS: TEAMS,
}
