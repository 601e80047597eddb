"""`onnx-bisect mcp` as the client of the protocol's own SDK sees it, over the pipes of a real process."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from mcp import Client, StdioServerParameters
from onnx import TensorProto, helper, save

from support.cli.command_line import PROGRAM

DOCUMENT = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(encoding="utf-8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    nodes = [helper.make_node("Abs", ["x"], ["a"], name="\x1b[2J"), helper.make_node("Relu", ["a"], ["y"], name="r")]
    path = tmp_path / "net.onnx"
    save(helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:])), path)
    return path


def talk(folder: Path, conversation: Callable[[Client], Awaitable[None]]) -> None:
    """A conversation with one server, whose verdicts are kept in the folder."""

    async def run() -> None:
        environment = {"ONNXBISECT_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
        started = StdioServerParameters(command=str(PROGRAM), args=["mcp"], env=environment)
        async with Client(started) as client:
            await conversation(client)

    asyncio.run(run())


async def told(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    structured = answer.structured_content
    assert structured is not None
    return structured.get("result", structured)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return str(answer.content[0])


def test_a_model_is_inspected_diagnosed_explained_and_repaired(tmp_path: Path, model: Path) -> None:
    target = {"model": str(model), "backend": "whitelist", "options": {"deny": "Abs"}}

    async def conversation(client: Client) -> None:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert all(f"| `{name}` |" in DOCUMENT for name in tools)
        assert len(tools) == 7
        seen = await told(client, "inspect", model=str(model))
        assert (seen["ops"], seen["nodes"]) == ({"Abs": 1, "Relu": 1}, 2)
        started = await told(client, "diagnose", **target, wait=0)
        ended = await told(client, "progress", id=started["id"], wait=60)
        assert ended["state"] == "finished"
        found = ended["diagnosis"]
        assert found["verdict"] == "fail"
        [row] = found["culprits"]
        assert (row["numbers"], row["ops"], row["places"]) == ([1], ["Abs"], 1)
        assert "abs" in row["replace_by"]
        assert json.loads(Path(found["report"]).read_text())["format"] == "onnx-bisect/report@1"
        culprit = await told(client, "explain_culprit", report=found["report"], number=1)
        [file] = [path for path in culprit["files"] if path.endswith("model.onnx")]
        assert len(onnx.load(file).graph.node) == 1
        assert "\x1b" not in json.dumps(culprit["nodes"], ensure_ascii=False)
        repair = await told(client, "fix", **target, wait=60, out=str(tmp_path / "repair"))
        assert repair["repair"]["verdict"] == "pass"
        assert str(tmp_path / "repair" / "repaired.onnx") in repair["repair"]["files"]
        assert (await told(client, "cancel", id=repair["id"]))["id"] == repair["id"]

    talk(tmp_path, conversation)


def test_mistakes_are_sentences_and_no_program_is_named(tmp_path: Path, model: Path) -> None:
    async def conversation(client: Client) -> None:
        backends = {it["name"]: it for it in await told(client, "list_backends")}
        assert "deny" in backends["whitelist"]["options"]
        asked = {"model": str(model), "wait": 60}
        assert "did you mean 'whitelist'" in await refused(client, "diagnose", **asked, backend="whitelst")
        tool = str(tmp_path / "evil.toml")
        assert "over the network a backend goes by name" in await refused(client, "diagnose", **asked, backend=tool)
        image = {"image": "evil:latest"}
        assert "command line" in await refused(client, "diagnose", **asked, backend="pulsar2", options=image)
        missing = {**asked, "model": str(tmp_path / "none.onnx"), "options": {"deny": "Abs"}}
        assert "none.onnx" in await refused(client, "diagnose", **missing, backend="whitelist")
        assert "no report.json" in await refused(client, "explain_culprit", report=str(model), number=1)
        assert "There is no work 'w99'" in await refused(client, "progress", id="w99")

    talk(tmp_path, conversation)


def test_the_server_ends_with_its_input() -> None:
    done = subprocess.run([PROGRAM, "mcp"], input="", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
