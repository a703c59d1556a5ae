"""Starts servers and runs frameworks_client_test.py against them: frameworks_test.py BUILD_DIR."""

from harness import IBID, Server, default_model, fake, main, run_client


def run_frameworks(server, kind):
    run_client(server, "venv-frameworks", "requirements-frameworks.txt", "frameworks_client_test.py", kind)


def test_against_the_scripted_server():
    with fake(0.1) as server:
        run_frameworks(server, "scripted")


def test_against_the_default_model():
    with Server([IBID, "serve", *default_model(), "--port", 0], seconds=600) as server:
        run_frameworks(server, "real")


if __name__ == "__main__":
    main(test_against_the_scripted_server, test_against_the_default_model)
