"""Starts servers and runs frameworks_client_test.py against them: frameworks_test.py BUILD_DIR."""
import subprocess

from harness import HERE, IBID, Server, default_model, fake, main, venv


def run_frameworks(server, kind):
    programs = venv("venv-frameworks", *(HERE / "requirements-frameworks.txt").read_text().split())
    result = subprocess.run([programs / "python", HERE / "frameworks_client_test.py", server.url, kind], timeout=600)
    code, errors = server.end()
    assert code == 0, errors
    assert result.returncode == 0


def test_against_the_scripted_server():
    with fake(0.1) as server:
        run_frameworks(server, "scripted")


def test_against_the_default_model():
    with Server([IBID, "serve", *default_model(), "--port", 0], seconds=120) as server:
        run_frameworks(server, "real")


if __name__ == "__main__":
    main(test_against_the_scripted_server, test_against_the_default_model)
