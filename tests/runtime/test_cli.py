"""The command line: what each command prints, its exit codes, and what a user sees when something is wrong."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palmette.runtime.cli.app import app

SOURCE = Path(__file__).resolve().parents[2] / ".src"
COMMAND = [sys.executable, "-c", "from palmette.runtime.cli import main; main()"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1", "COLUMNS": "200"}


def invoke(*arguments: str, text: str | None = None):
    return CliRunner().invoke(app, list(arguments), input=text, env={"NO_COLOR": "1", "COLUMNS": "200"})


def palmette(*arguments: str, text: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=text, capture_output=True, text=True, timeout=timeout, env=environment()
    )


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys; from palmette.runtime.cli.app import app; import typer.main; typer.main.get_command(app);"
        "print(sorted({'torch', 'numpy', 'fastapi', 'httpx', 'tokenizers'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert out.stdout.strip() == "[]"
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("run", "serve", "generate", "chat", "models"):
        assert command in result.output


def test_the_version() -> None:
    import palmette as package

    result = invoke("--version")
    assert (result.exit_code, result.output) == (0, f"palmette {package.__version__}\n")


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "palmette", "--version"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout
    assert out == invoke("--version").output


def test_generate_prints_the_continuation_only() -> None:
    once, again = (invoke("generate", "def f(x):", "-m", "tiny", "-n", "8", "--seed", "1") for _ in range(2))
    assert once.exit_code == 0
    assert once.stdout == again.stdout
    assert len(once.stdout) > 1
    assert once.stderr == ""
    piped = invoke("generate", "-", "-m", "tiny", "-n", "8", "--seed", "1", text="def f(x):")
    assert piped.stdout == once.stdout
    chat = invoke("generate", "def f(x):", "--chat", "-m", "tiny", "-n", "8", "--seed", "1")
    assert chat.stdout != once.stdout


def test_chat_takes_turns_until_exit() -> None:
    result = invoke(
        "chat", "-m", "tiny", "-n", "4", "--seed", "1", text="hello\n\n/what\n/reset\nhello\n/exit\nnever\n"
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.startswith("/what is no command here") for line in lines)
    assert lines[0] == lines[-1], "after /reset the same seed gives the same reply"
    assert invoke("chat", "-m", "tiny", "-n", "4", text="hello\n").exit_code == 0  # the end of input ends it too


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["generate", "x", "-m", "nope"], 1, "There is no model 'nope'"),
        (["generate", "x", "-m", "tiny", "--temperature", "1000"], 2, "temperature=1000.0"),
        (["generate", "x", "-m", "tiny", "--page-size", "0"], 2, "page_size=0"),
        (["generate", "x", "-m", "tiny", "--kv-tokens", "3"], 1, "less than one page"),
        (["generate", "word " * 9000, "-m", "tiny"], 1, "2048"),
        (
            ["generate", "x", "-m", "tiny", "--url", "http://localhost:9"],
            2,
            "--model is an option of an engine",
        ),
        (["generate", "x", "--api-key", "k"], 2, "--api-key needs --url"),
        (["generate", "x", "--url", "http://localhost:9"], 1, "palmette serve"),
        (["generate"], 2, "prompt"),
        (["run", "no_such_file.py"], 2, "no_such_file.py"),
        (["models", "describe", "nope"], 1, "nope"),
        (["fly"], 2, "fly"),
    ],
)
def test_errors_are_one_paragraph_and_an_exit_code(arguments: list[str], code: int, message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == code, result.stderr
    assert message.lower() in " ".join(result.stderr.lower().split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in invoke("--debug", "generate", "x", "-m", "nope").stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_paragraph() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "generate", "x", "-m", "tiny", "-n", "4"],
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "palmette: No space left on device.\n")


PROGRAM = """
import sys
import palmette as sgl

@sgl.function
def ask(s, question):
    s += sgl.user(question) + sgl.assistant(sgl.gen("answer", max_tokens=4, temperature=0.0))

if __name__ == "__main__":
    print(len(ask(sys.argv[1])["answer"]) > 0, sys.argv[1:])
"""


def test_run_gives_a_program_its_backend_and_arguments(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = palmette("run", "-m", "tiny", str(file), "hello", "--", "--flag")
    assert (done.returncode, done.stdout.strip()) == (0, "True ['hello', '--flag']"), done.stderr


def test_run_says_where_a_program_failed(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import palmette as sgl\n\n1 / 0\n")
    done = palmette("run", str(file))
    assert done.returncode == 1
    assert f"{file}:3: ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback" not in done.stderr
    file.write_text("import palmette as sgl\nsgl.gen('x', temperature=-1)\n")
    done = palmette("run", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{file}:2: temperature=-1 is not" in done.stderr
    file.write_text("x = 1\nprint((x)\n")
    assert f"{file}:2: SyntaxError: '(' was never closed" in palmette("run", str(file)).stderr
    file.write_text(PROGRAM)
    refused = palmette("run", "-m", "tiny", "--threads", "0", str(file), "hello")
    assert (refused.returncode, refused.stderr) == (2, "palmette: threads=0 is not a whole number of 1 or more.\n")
    file.write_text("import sys\nsys.exit(7)\n")
    assert palmette("run", str(file)).returncode == 7
    file.write_text(PROGRAM.replace("max_tokens=4", "max_tokens=100000"))
    failed = palmette("run", "-m", "tiny", str(file), "hello")
    assert failed.returncode == 1
    assert "program.py:7 in ask: gen('answer')" in failed.stderr


def test_run_of_a_file_that_runs_nothing_says_so(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    defines = PROGRAM.split("\nif __name__")[0]
    file.write_text(defines)
    done = palmette("run", "-m", "tiny", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{file} defines ask and runs nothing. Run it at the end of the file: ask.run(…)" in done.stderr
    file.write_text(f"{defines}\nask('x')['anser']\n")
    done = palmette("run", "-m", "tiny", str(file))
    assert done.returncode == 1
    assert done.stderr.count("program.py:") == 1
    assert "Did you mean 'answer'?" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_generation_and_keeps_its_text() -> None:
    arguments = ["generate", "Once upon a time", "-n", "4000", "--seed", "1"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert first + rest
    assert "Traceback" not in errors


@pytest.mark.slow
def test_ctrl_c_in_a_chat_ends_the_reply_and_the_chat_goes_on() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(COMMAND[0], [*COMMAND, "chat", "-n", "2000", "--seed", "1"], environment())
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 40
        while text not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096)

    try:
        until(b"\n> ")
        shown = b""
        os.write(terminal, b"Tell me a long story.\n")
        until(b"story.\r\n")
        time.sleep(1.0)
        os.write(terminal, b"\x03")
        until(b"\n> ")
        assert b"[stopped]" in shown
        os.write(terminal, b"/exit\n")
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        os.close(terminal)


@pytest.mark.server
def test_serve_shows_its_address_and_stops_on_ctrl_c(request: pytest.FixtureRequest) -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", "-m", "tiny", "--port", "0", "--kv-tokens", "4096"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
    )  # fmt: skip
    request.addfinalizer(process.kill)  # whatever fails; its engine ends with it
    assert process.stdout is not None
    seen: list[str] = []
    deadline = time.monotonic() + 60
    while not any("Ctrl-C" in line for line in seen):
        line = process.stdout.readline()
        assert line, "".join(seen)
        assert time.monotonic() < deadline, "".join(seen)
        seen.append(line)
    banner = "".join(seen)
    url = next(word for word in banner.split() if word.startswith("http://"))
    assert "tiny" in banner
    assert "4,096 tokens of bfloat16 in pages of 16" in banner
    assert f"curl {url}/v1/chat/completions" in banner
    asked = palmette("generate", "a", "--url", url, "-n", "4")
    assert (asked.returncode, bool(asked.stdout)) == (0, True), asked.stderr
    taken = palmette("serve", "-m", "tiny", "--port", url.rsplit(":", 1)[1])
    assert taken.returncode in (1, 2)
    assert url.rsplit(":", 1)[1] in taken.stderr
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert process.returncode in (0, 130), rest
    assert "Traceback" not in rest


def test_models_lists_and_describes() -> None:
    for arguments in (("models",), ("models", "list")):
        listed = invoke(*arguments)
        assert listed.exit_code == 0
        assert "smollm2-135m (default)" in listed.stdout
        assert "Apache-2.0" in listed.stdout
    described = invoke("models", "describe", "tiny")
    assert "2,048 tokens" in described.stdout
    assert "llama" in described.stdout
