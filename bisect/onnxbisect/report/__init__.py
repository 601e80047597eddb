"""From a Job to what people and machines read."""

from onnxbisect.report.culprits import culprit_dir_name
from onnxbisect.report.document import FORMAT, document, schema

__all__ = ["FORMAT", "culprit_dir_name", "document", "schema"]
