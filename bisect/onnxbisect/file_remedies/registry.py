"""All file remedies, in the order in which several of them are applied to one file."""

from onnxbisect.file_remedies.control_flow import resolve_control_flow, sequences_to_tensors
from onnxbisect.file_remedies.declarations import (
    bind_dimensions,
    correct_declared_types,
    name_nodes,
    reorder_nodes,
    sort_nodes,
    weights_no_inputs,
)
from onnxbisect.file_remedies.form import (
    constants_to_initializers,
    declare_shapes,
    densify,
    drop_empty_outputs,
    neutral_boundary,
    omit_reduction,
    safe_names,
    shorten_names,
    weights_inside,
    write_defaults,
)
from onnxbisect.file_remedies.inlining import inline_functions
from onnxbisect.file_remedies.ir_version import lower_ir_version
from onnxbisect.file_remedies.lowering import axes_to_attributes, lower_opset
from onnxbisect.file_remedies.masks import bound_masks
from onnxbisect.file_remedies.remedy import FileRemedy
from onnxbisect.file_remedies.removal import fold_constants, remove_copies, remove_nan_guards

#: Remedies that others rely on come first, those about the operator set and the IR version last.
REMEDIES: tuple[FileRemedy, ...] = (
    name_nodes,
    sort_nodes,
    weights_no_inputs,
    bind_dimensions,
    inline_functions,
    resolve_control_flow,
    sequences_to_tensors,
    drop_empty_outputs,
    remove_nan_guards,
    bound_masks,
    remove_copies,
    fold_constants,
    densify,
    constants_to_initializers,
    correct_declared_types,
    lower_opset,
    axes_to_attributes,
    write_defaults,
    omit_reduction,
    neutral_boundary,
    shorten_names,
    lower_ir_version,
    declare_shapes,
    safe_names,
    weights_inside,
    reorder_nodes,
)
