"""JSON Schemas (2020-12) of `report.json` and `overview.json`, generated from their types."""

from typing import Any

from pydantic import ConfigDict, RootModel
from pydantic.json_schema import GenerateJsonSchema

from onnxbisect.report.contents import Report
from onnxbisect.report.overview import Overview


class _Generate(GenerateJsonSchema):
    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().typed_dict_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


# Built on first use: it takes a quarter of a second, which would delay every command.
class _Report(RootModel[Any]):
    root: Report
    model_config = ConfigDict(title="onnx-bisect/report@1", use_attribute_docstrings=True, defer_build=True)


class _Overview(RootModel[Any]):
    root: Overview
    model_config = ConfigDict(title="onnx-bisect/overview@1", use_attribute_docstrings=True, defer_build=True)


def report_schema() -> dict[str, Any]:
    """The JSON Schema of `report.json`, which is also that of `Result.report`."""
    return {"$schema": _Generate.schema_dialect, **_Report.model_json_schema(schema_generator=_Generate)}


def overview_schema() -> dict[str, Any]:
    """The JSON Schema of `overview.json`."""
    return {"$schema": _Generate.schema_dialect, **_Overview.model_json_schema(schema_generator=_Generate)}
