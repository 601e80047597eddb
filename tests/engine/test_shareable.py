"""A culprit's file without what is its owner's: names and weights, and larger shapes than the failure needs."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxbisect.errors import ModelError
from onnxbisect.model.scopes import walk
from onnxbisect.shareable import shareable

OPSET = '<ir_version: 8, opset_import: ["": 17], producer_name: "secret">'
CHAIN = f"""{OPSET}
secret_net (float[1,128,256] secret_in) => (float[128,96] secret_out)
<float[256,96] secret_w, int64[2] secret_shape = {{128, 96}}> {{
  [secret_mm] secret_h = MatMul(secret_in, secret_w)
  [secret_r] secret_out = Reshape(secret_h, secret_shape)
}}"""


@pytest.fixture
def chain() -> onnx.ModelProto:
    model = parser.parse_model(CHAIN)
    weights = np.random.default_rng(7).standard_normal((256, 96), np.float32)
    model.graph.initializer.insert(0, numpy_helper.from_array(weights, "secret_w"))
    model.graph.node[0].metadata_props.add(key="secret", value="secret")
    model.graph.doc_string = "secret"
    return model


def shapes(model: onnx.ModelProto) -> list[list[int]]:
    values = (*model.graph.input, *model.graph.output)
    return [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values]


def test_what_is_left_is_small_valid_and_has_nothing_of_its_owners(chain: onnx.ModelProto) -> None:
    found = shareable(chain, lambda model: [node.op_type for node in model.graph.node] == ["MatMul", "Reshape"])
    assert found is not None
    assert shapes(found) == [[1, 1, 1], [1]]
    assert b"secret" not in found.SerializeToString()
    onnx.checker.check_model(found, full_check=True)
    assert not np.isin(weights(found), weights(chain)).any()


@pytest.mark.parametrize("needed", [2, 3, 8])
def test_a_size_is_as_small_as_the_failure_lets_it(chain: onnx.ModelProto, needed: int) -> None:
    found = shareable(chain, lambda model: shapes(model)[0][2] >= needed)
    assert found is not None
    assert shapes(found)[0] == [1, 1, needed]


def test_whatever_is_asked_about_is_a_valid_model_without_its_owners_words(chain: onnx.ModelProto) -> None:
    asked = 0

    def fails(model: onnx.ModelProto) -> bool:
        nonlocal asked
        asked += 1
        onnx.checker.check_model(model, full_check=True)
        assert b"secret" not in model.SerializeToString()
        return asked == 1

    found = shareable(chain, fails)
    assert found is not None
    assert shapes(found) == shapes(chain), "what did not fail was not kept"
    assert asked > 3
    assert not (weights(found) == weights(chain)).any()


def weights(model: onnx.ModelProto) -> np.ndarray:
    found = next(it for it in model.graph.initializer if it.data_type == onnx.TensorProto.FLOAT)
    return numpy_helper.to_array(found)


def test_nothing_of_its_owners_is_left_in_sparse_weights_and_bodies() -> None:
    model = parser.parse_model(f"""{OPSET}
    secret_net (float[2] secret_in, bool secret_c) => (float[2] secret_out) {{
      secret_s = OptionalGetElement(secret_o)
      secret_out = If (secret_c) <
        then_branch = secret_then () => (float[secret_n] secret_a) {{ secret_a = Add(secret_in, secret_s) }},
        else_branch = secret_else () => (seq(float[secret_m]) secret_b) {{ secret_b = Add(secret_in, secret_k) }}>
    }}""")
    values = numpy_helper.from_array(np.array([0.125, 0.25], np.float32), "secret_k")
    indices = numpy_helper.from_array(np.array([0, 1]), "secret_indices")
    sparse = onnx.helper.make_sparse_tensor(values, indices, [2])
    sparse.values.doc_string = "secret"
    model.graph.sparse_initializer.append(sparse)
    model.graph.node.add(op_type="Constant", output=["secret_o"]).attribute.append(
        onnx.helper.make_attribute("sparse_value", sparse)
    )
    model.graph.node[0].device_configurations.add(configuration_id="secret")
    found = shareable(model, lambda model: True)
    assert found is not None
    content = found.SerializeToString()
    assert b"secret" not in content
    assert values.raw_data not in content


def test_nothing_is_left_of_masks_and_of_listed_numbers() -> None:
    numbers, mask = np.arange(100, 200), np.random.default_rng(3).random(100) < 0.5
    stored = ",".join(map(str, mask * 1))
    model = parser.parse_model(f"""{OPSET}
    secret_net (float[100] secret_in) => (float[100] secret_out) <bool[100] mask = {{{stored}}}> {{
      listed = Constant<value_floats = [{",".join(f"{number}.0" for number in numbers)}]>()
      secret_out = Where(mask, secret_in, listed)
    }}""")
    found = shareable(model, lambda asked: shapes(asked)[0] == [100])
    assert found is not None
    assert not np.isin(found.graph.node[0].attribute[0].floats, numbers).any()
    left = numpy_helper.to_array(found.graph.initializer[0])
    assert left.any()
    assert (left != mask).any()


def test_what_a_resize_is_asked_for_stays() -> None:
    model = parser.parse_model(f"""{OPSET}
    secret_net (float[1,2,3,4] secret_in) => (float[1,2,6,8] secret_out) <float[4] secret_scales = {{1, 1, 2, 2}}> {{
      scales = Constant<value = float[4] {{1, 1, 0.5, 0.5}}>()
      double = Resize(secret_in, , secret_scales)
      same = Resize(double, , scales)
      secret_out = Resize(same, , secret_scales)
    }}""")

    found = shareable(model, lambda asked: shapes(asked)[1][3] == 2 * shapes(asked)[0][3])
    assert found is not None
    stored = [found.graph.initializer[0], found.graph.node[0].attribute[0].t]
    assert [numpy_helper.to_array(tensor).tolist() for tensor in stored] == [[1, 1, 2, 2], [1, 1, 0.5, 0.5]]


def test_a_failure_of_these_very_weights_cannot_be_shared(chain: onnx.ModelProto) -> None:
    own = weights(chain)
    assert shareable(chain, lambda model: bool((weights(model) == own).all())) is None


def test_the_model_of_the_caller_stays_as_it_is(chain: onnx.ModelProto) -> None:
    before = chain.SerializeToString()
    shareable(chain, lambda model: True)
    assert chain.SerializeToString() == before


BODIES = f"""{OPSET}
net (bool secret_c, float[64] secret_x) => (float[64] secret_y) {{
  secret_y = If(secret_c) <
    then_branch = secret_then () => (float[64] secret_a) {{ secret_a = Sin(secret_x) }},
    else_branch = secret_else () => (float[64] secret_b) {{ secret_b = Cos(secret_x) }}>
}}"""
CONSTANT = f"""{OPSET}
net (float[secret_n] secret_x) => (float[secret_n] secret_y) {{
  secret_k = Constant <value = float[2] secret_tensor {{1.5, 2.5}}> ()
  secret_s = ReduceSum(secret_k)
  secret_t = Sin(secret_s)
  secret_y = Add(secret_x, secret_t)
}}"""
FUNCTION = """<ir_version: 8, opset_import: ["": 17, "secret.domain": 1]>
net (float[64] x) => (float[64] y) { y = secret.domain.secret_f(x) }
<domain: "secret.domain", opset_import: ["": 17]>
secret_f (secret_a) => (secret_b) { secret_b = Sin(secret_a) }"""


@pytest.mark.parametrize("text", [BODIES, CONSTANT, FUNCTION])
def test_bodies_constants_and_functions_have_plain_names_too(text: str) -> None:
    found = shareable(parser.parse_model(text), lambda model: "Sin" in [it.op_type for it in walk(model.graph)])
    assert found is not None
    assert b"secret" not in found.SerializeToString()


def test_functions_that_are_called_wrongly_are_told_in_a_sentence() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "my": 1]>
g (float[2] x) => (float[2] y) { y = my.Twice(x, x) }
<domain: "my", opset_import: ["": 17]>
Twice (a) => (b) { b = Add(a, a) }""")
    with pytest.raises(ModelError, match="onnx cannot inline the functions of this file: mend first"):
        shareable(model, lambda _: True)
