"""The example of the C library, over a tiny model. c_example_test.py BUILD_DIR."""
import json
import subprocess
import tempfile

import tiny_model
from harness import BUILD, main


def test_the_c_example_answers_as_json_and_as_a_stream():
    def run(model, code):
        done = subprocess.run([BUILD / "complete_example", model, "Say something."], capture_output=True, timeout=600)
        assert done.returncode == code, done
        return done.stdout.decode(), done.stderr.decode()

    with tempfile.TemporaryDirectory() as folder:
        out, _ = run(tiny_model.make(f"{folder}/tiny"), 0)
    whole, *events = [json.loads(line) for line in out.splitlines()]
    streamed = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert len(events) > 1 and streamed == whole["choices"][0]["message"]["content"]
    assert run("/nowhere/at/all.gguf", 1)[1].startswith("error: ")


if __name__ == "__main__":
    main(test_the_c_example_answers_as_json_and_as_a_stream)
