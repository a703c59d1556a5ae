"""What routers read of a replica: /server_info, the metrics that are facts, and the fields of those that part prefill from
decode. replica_test.py BUILD_DIR."""
import json
import re
import tempfile
import urllib.error

import tiny_model
from harness import IBID, Server, main

FLAGS = ["--ctx", 512, "--threads", 1, "--kv-memory", "1M", "--max-sequences", 4]
ASKED = {"prompt": "Why is it so?", "temperature": 0, "max_tokens": 8, "ignore_eos": True, "seed": 3}


def facts(text, name):
    """The labels and the value of a metric that stands once."""
    (found,) = re.findall(rf"^{name}\{{(.*)\}} ([\d.]+)$", text, re.M)
    return dict(re.findall(r'(\w+)="([^"]*)"', found[0])), float(found[1])


def served(*flags):
    folder = tempfile.TemporaryDirectory()
    model = tiny_model.make(folder.name + "/tiny")
    server = Server([IBID, "serve", model, "--port", 0, *FLAGS, *flags])
    server.folder = folder  # as long as the server
    return server


def test_a_replica_describes_itself():
    for names in ("ibid", "vllm", "llama.cpp"):
        with served("--metrics-names", names) as server:
            text = server.get("/metrics")
            labels, value = facts(text, "vllm:cache_config_info")
            info = json.loads(server.get("/server_info"))
            blocks = int(labels["num_gpu_blocks"])
            assert value == 1 and blocks > 0 and labels["cache_dtype"] == "F16", labels
            assert (labels["enable_prefix_caching"], labels["num_cpu_blocks"]) == ("True", "0"), labels
            assert info["page_size"] == int(labels["block_size"]), info
            assert info["max_total_num_tokens"] == blocks * info["page_size"], info
            # The same as what is counted as blocks by the table's own metrics.
            if names == "ibid":
                counted = sum(float(n) for n in re.findall(r'^ibid_cache_blocks\{state="(?:free|cached|in_use)"\} (\S+)$', text, re.M))
                assert counted == blocks, (counted, blocks)
            assert "lora_requests_info" not in text
            assert (info["context_length"], info["status"], info["tp_size"], info["dp_size"]) == (512, "ready", 1, 1), info
            assert info["model_path"] == json.loads(server.get("/v1/models"))["data"][0]["id"], info
            assert info["kv_events_config"] is None and info["enable_lora"] is False and info["disable_radix_cache"] is False


def test_prefill_and_decode_apart_give_the_same_answer():
    with served() as one, served() as other:
        plain = one.post("/v1/completions", ASKED)
        asked = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
                 "remote_host": None, "remote_port": None}
        prefill = one.post("/v1/completions", {**ASKED, "max_tokens": 1, "min_tokens": 1, "kv_transfer_params": asked})
        handed = prefill["kv_transfer_params"]
        assert handed["do_remote_prefill"] is True and handed["do_remote_decode"] is False, handed
        assert handed["remote_num_tokens"] == prefill["usage"]["prompt_tokens"], handed
        # As routers do: verbatim, with members of their own, and from another engine.
        for given in (handed, {**handed, "remote_host": "10.0.0.7", "remote_port": 14579, "transfer_mode": "pull", "x": {"y": [1]}}):
            decode = other.post("/v1/completions", {**ASKED, "kv_transfer_params": given, "cache_hit_threshold": 0.8})
            assert decode["choices"] == plain["choices"] and "kv_transfer_params" not in decode, decode
        chat = one.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1,
                                                 "kv_transfer_params": asked})
        assert chat["kv_transfer_params"]["remote_request_id"] == chat["id"], chat
        for wrong in ("yes", {"do_remote_decode": 1}):
            try:
                one.post("/v1/completions", {**ASKED, "kv_transfer_params": wrong})
                raise AssertionError(wrong)
            except urllib.error.HTTPError as error:
                assert error.code == 400 and "kv_transfer_params" in error.read().decode()


if __name__ == "__main__":
    main(test_a_replica_describes_itself, test_prefill_and_decode_apart_give_the_same_answer)
