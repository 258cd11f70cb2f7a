"""Templates of any command-line agent, the shipped recipes, and where a client is found."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from client_bench import PROMPT, role_agent

from vibeserve.agents.clients import find_program
from vibeserve.agents.clients.call import Call, prompt_of
from vibeserve.agents.clients.parsing import PARSERS
from vibeserve.agents.clients.template import recipe_of, recipes
from vibeserve.agents.requests import AgentRequest, CallLimits
from vibeserve.errors import AgentInfraError, SpecError
from vibeserve.spec import Command

GOOD = {"argv": ["agent", "{prompt}"], "dialect": "chat", "parser": "text"}


def recipe(command: dict[str, Any], **agent: Any) -> Any:
    return recipe_of(Command(**command), agent=role_agent("command", "", **agent))


def make_call(folder: Path, **changes: Any) -> Call:
    settings: dict[str, Any] = {
        "role": "judge", "key": "r01a1-judge", "prompt": PROMPT, "workspace": folder, "is_writable": False,
        "output_schema": {"type": "object"}, "limits": CallLimits(timeout_s=1, max_turns=1), "record_dir": folder,
    }  # fmt: skip
    request = AgentRequest(**{**settings, **changes})
    return Call(request=request, model="m-1", base_url="http://127.0.0.1:1/v1", client_key="k")


def test_a_template_s_words_are_filled_once(tmp_path: Path) -> None:
    call = make_call(tmp_path, prompt="say {model} and {config_dir}")
    assert call.fill("-m={model} {prompt}") == "-m=m-1 say {model} and {config_dir}"
    filled = call.fill("{workspace} {base_url} {prompt_file} {schema_file} {output_file} {config_dir} {other} {env:X}")
    workspace, base_url, prompt_file, schema_file, output_file, config_dir, *rest = filled.split(" ")
    assert (workspace, base_url, rest) == (str(tmp_path), "http://127.0.0.1:1/v1", ["{other}", "{env:X}"])
    assert Path(prompt_file).read_text() == call.prompt and Path(schema_file).read_text().strip()
    assert Path(config_dir).is_dir() and Path(output_file).parent == call.scratch


def test_every_call_has_a_scratch_folder_of_its_own_that_goes_with_it(tmp_path: Path) -> None:
    first, second = make_call(tmp_path), make_call(tmp_path)
    assert first.scratch != second.scratch
    first.clear()
    assert not first.scratch.exists() and second.home.is_dir()


def test_feedback_follows_the_prompt(tmp_path: Path) -> None:
    assert prompt_of(make_call(tmp_path).request) == PROMPT
    told = prompt_of(make_call(tmp_path, feedback="the answer is empty").request)
    assert told.startswith(PROMPT.rstrip()) and "could not be used: the answer is empty" in told


def test_the_shipped_recipes_can_be_run() -> None:
    assert sorted(recipes()) == ["gemini", "opencode"]
    for name in recipes():
        made = recipe({"recipe": name})
        assert made.parser in PARSERS and made.install.startswith("npm install -g ")


def test_what_a_command_names_is_stronger_than_its_recipe() -> None:
    made = recipe({"recipe": "opencode", "argv": ["mine", "{prompt}"], "env": {"OWN": "1"}})
    assert made.argv == ("mine", "{prompt}") and made.dialect == "chat" and made.parser == "opencode_jsonl"
    assert made.env["OWN"] == "1" and made.env["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
    assert made.install == ""


@pytest.mark.parametrize(
    ("command", "agent", "expected"),
    [
        ({"recipe": "aider"}, {}, "agents.command.recipe: unknown recipe 'aider'\n  valid: gemini, opencode"),
        (
            {},
            {},
            "agents.command cannot be run\n"
            "  agents.command.argv: empty; give the words of a command line, or a recipe (gemini, opencode)\n"
            "  agents.command.dialect: '' is not valid; valid: responses, chat, messages, gemini\n"
            "  agents.command.parser: '' is not valid; valid: text, codex_jsonl, claude_json, opencode_jsonl, "
            "gemini_json\n"
            "next: see docs/agents.md",
        ),
        ({**GOOD, "dialect": "smalltalk"}, {}, "agents.command.dialect: 'smalltalk' is not valid; valid: responses, "),
        ({**GOOD, "parser": "xml"}, {}, "agents.command.parser: 'xml' is not valid; valid: text, codex_jsonl, "),
        (
            {**GOOD, "argv": ["a", "{prompt}", "{promt}"], "env": {"X": "{key}"}},
            {},
            "agents.command: unknown words key, promt in braces; valid: prompt, prompt_file, workspace, model, "
            "base_url, schema_file, output_file, config_dir",
        ),
        ({**GOOD, "argv": ["a"]}, {}, "agents.command: neither {prompt} nor {prompt_file} stands anywhere in it"),
        (
            {**GOOD, "argv": ["a", "{prompt}", "{model}"]},
            {"model": ""},
            "agents.model: empty, and the command names {model}",
        ),
        ({"recipe": "gemini"}, {"model": ""}, "agents.model: empty, and the command names {model}"),
        (
            GOOD,
            {"effort": "high"},
            "agents.effort: a command would ignore it; write it into agents.command.argv",
        ),
    ],
)
def test_a_template_that_cannot_be_run_is_refused(command: Any, agent: Any, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        recipe(command, **agent)
    assert expected in str(caught.value)


def test_a_template_without_a_model_needs_none() -> None:
    assert recipe(GOOD, model="").argv == ("agent", "{prompt}")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of executables that is searched first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("VIBESERVE_AGENT_PATH", f"{tmp_path / 'nothing'}:{folder}")
    return folder


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_package_of_npm_is_mounted_with_what_it_depends_on(installed: Path, tmp_path: Path) -> None:
    node = executable(tmp_path / "own node" / "node", "not a script")
    script = executable(tmp_path / "lib/node_modules/@scope/agent/bin/agent.js", "#!/usr/bin/env node\n")
    (installed / "agent").symlink_to(script)
    (installed / "node").symlink_to(node)
    program = find_program("agent", install="npm")
    assert program.argv == (str(node), str(script))
    assert program.read_only == (tmp_path / "lib/node_modules", node)
    assert program.folders == (installed,)


def test_a_binary_alone_is_mounted_alone(installed: Path, tmp_path: Path) -> None:
    binary = executable(tmp_path / "share/agent/versions/1.0", "not a script")
    (installed / "agent").symlink_to(binary)
    program = find_program("agent", install="curl")
    assert (program.argv, program.read_only, program.folders) == ((str(binary),), (binary,), ())


def test_what_lies_in_the_system_needs_no_mount() -> None:
    program = find_program("sh", install="apt")
    assert (program.argv, program.read_only) == ((os.path.realpath("/bin/sh"),), ())


def test_a_python_script_brings_its_environment(installed: Path) -> None:
    executable(installed / "agent", f"#!{sys.executable} -I\n")
    program = find_program("agent", install="pip")
    assert program.argv == (sys.executable, "-I", str(installed / "agent"))
    assert Path(sys.prefix) in program.read_only


def test_an_interpreter_that_is_missing_is_named(installed: Path) -> None:
    script = executable(installed / "agent", "#!/usr/bin/env -S no-such-node --flag\n")
    with pytest.raises(AgentInfraError) as caught:
        find_program("agent", install="npm")
    assert str(caught.value) == (
        f"{script} needs no-such-node, which is not installed\nnext: install no-such-node"
    )  # fmt: skip
    assert caught.value.is_lasting


def test_a_program_that_is_missing_is_named_with_its_install_command(installed: Path) -> None:
    with pytest.raises(AgentInfraError, match="next: npm install -g agent") as caught:
        find_program("agent", install="npm install -g agent")
    assert caught.value.is_lasting
