"""Reads protobuf's text format for messages that are pydantic models.

protobuf can parse the text only against a descriptor, so one is built from the models. Field numbers do not occur in
the text format; any will do.
"""

from enum import StrEnum
from functools import cache
from typing import Any, get_args

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2, text_format
from pydantic import BaseModel

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {bool: _Field.TYPE_BOOL, int: _Field.TYPE_INT64, float: _Field.TYPE_DOUBLE, str: _Field.TYPE_STRING}


def parse(text: str, root: type[BaseModel], package: str) -> dict[str, Any]:
    """The fields that the text sets, by name; raises ValueError with the place and protobuf's words."""
    message = _message_class(root, package)()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ValueError(str(error)) from None
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


@cache
def _message_class(root: type[BaseModel], package: str) -> Any:
    # proto2, because its scalars remember whether they were set
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    _describe(root, file, set())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root.__name__}"))


def _describe(model: type[BaseModel], file: descriptor_pb2.FileDescriptorProto, done: set[type]) -> None:
    if model in done:
        return
    done.add(model)
    message = file.message_type.add(name=model.__name__)
    for number, (name, about) in enumerate(model.model_fields.items(), 1):
        kind, repeated = _element(about.annotation)
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind is dict:
            field.type, field.type_name = _Field.TYPE_MESSAGE, ".google.protobuf.Struct"
        elif issubclass(kind, StrEnum):
            field.type, field.type_name = _Field.TYPE_ENUM, f".{file.package}.{_enum(kind, file, done)}"
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{file.package}.{kind.__name__}"
            _describe(kind, file, done)


def _element(annotation: Any) -> tuple[type, bool]:
    """The type of a field's values, and whether there may be several: `X`, `X | None`, `tuple[X, ...]`, `dict`."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation, False
    first = get_args(annotation)[0]
    if get_args(annotation)[-1] is Ellipsis:
        return first, True
    return (dict if first is str else first), False


def _enum(kind: type[StrEnum], file: descriptor_pb2.FileDescriptorProto, done: set[type]) -> str:
    """Inside a message of its own: enumerations share values such as `Slice`, which one scope cannot hold twice."""
    if kind not in done:
        done.add(kind)
        values = file.message_type.add(name=f"{kind.__name__}Names").enum_type.add(name=kind.__name__)
        for number, value in enumerate(kind):
            values.value.add(name=value.value, number=number)
    return f"{kind.__name__}Names.{kind.__name__}"
