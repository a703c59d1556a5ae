"""A folder of models, some of which are none: what is listed, and that no model is unloaded for one that cannot be loaded.
fleet_test.py BUILD_DIR."""
import json
import tempfile
import urllib.error

import tiny_model
from harness import IBID, Server, main


def status_of(server, model, path="/v1/completions"):
    try:
        server.post(path, {"model": model, "prompt": "hey", "max_tokens": 1})
        return 200, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def figures(server):
    """By model: loaded, loads, unloads."""
    out = {}
    for line in server.get("/metrics").splitlines():
        if line.startswith(("ibid_model_loaded{", "ibid_model_loads_total{", "ibid_model_unloads_total{")):
            name, value = line.split(" ")
            out.setdefault(name.split('"')[1], []).append(int(value))
    return out


def test_a_folder_of_models_some_of_which_are_none():
    with tempfile.TemporaryDirectory() as folder:
        good, other = tiny_model.make(folder + "/good"), tiny_model.make(folder + "/other")
        for name in ("mmproj-good-f16.gguf", "good-mmproj.gguf", "large-00001-of-00003.gguf", "large-00002-of-00003.gguf"):
            (good.parent / name).write_bytes(b"GGUF" + bytes(60))
        (good.parent / "a.gguf").write_bytes(b"GGUF" + bytes(60))  # the first by name
        cut = tiny_model.make(folder + "/cut")
        weights = cut / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-1000])
        strange = tiny_model.make(folder + "/strange")
        config = json.loads((strange / "config.json").read_text())
        (strange / "config.json").write_text(json.dumps({**config, "architectures": ["Nobody"], "model_type": "nobody"}))
        with Server([IBID, "serve", "--models-dir", folder, "--models-max", 1, "--port", 0]) as server:
            listed = sorted({model["root"] for model in json.loads(server.get("/v1/models"))["data"]})
            assert listed == ["a", "cut", "good", "other", "strange"], listed
            assert status_of(server, "")[0] == 200, "who names none gets the first that can be loaded"
            assert status_of(server, "good")[0] == 200
            before = figures(server)
            assert before["good"][0] == 1, before
            for model in ("a", "cut", "strange", "cut", "a"):
                code, text = status_of(server, model)
                assert code == 503 and "cannot be loaded" in text, (model, code, text)
                assert figures(server) == before, (model, before, figures(server))
            assert status_of(server, "nobody")[0] == 404
            weights.write_bytes(whole)  # mended: it is tried again
            assert status_of(server, "cut")[0] == 200
            assert figures(server)["cut"][0] == 1 and figures(server)["good"][0] == 0


main(test_a_folder_of_models_some_of_which_are_none)
