"""The command line as people type it: commands, flags and files that other programs have, and the messages for wrong ones.
commands_test.py BUILD_DIR."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import tiny_model
from harness import IBID, Server, eventually, main

SOME = ("-n", 4, "--seed", 3, "--ignore-eos")


def ibid(*arguments, code=0, **more):
    more = more if "input" in more else {"stdin": subprocess.DEVNULL, **more}
    done = subprocess.run([IBID, *(str(a) for a in arguments)], capture_output=True, timeout=120, text=True, **more)
    assert done.returncode == code, (arguments, done)
    return done.stdout if code == 0 else done.stderr


def test_a_wrong_command_or_flag_suggests_the_right_one():
    for words, sentence in ((("serv",), 'unknown command "serv"; did you mean serve? \'ibid --help\''),
                            (("--log-level", "info", "srve"), "did you mean serve?"),
                            (("spec", "build-stor"), "did you mean build-store? 'ibid spec --help'"),
                            (("zzzzzz",), 'unknown command "zzzzzz"; \'ibid --help\' lists them.'),
                            (("run", "--promt", "x"), "unknown flag --promt; did you mean --prompt? 'ibid run --help'"),
                            (("run", "--max_tokens=5"), "did you mean --max-tokens?"),
                            (("serve", "--port", "abc"), "'ibid serve --help' lists the flags.")):
        told = ibid(*words, code=2)
        assert sentence in told and told.startswith("error: ") and told.count("\n") == 1, (words, told)
        assert not re.search(r"[.;]; |\.\.|; ;", told), told  # one end


def test_a_folders_recipe_chooses_the_types_of_keys_and_values():
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        config = json.loads((made / "config.json").read_text())

        def types(scheme, *flags):
            recipe = {"quant_method": "compressed-tensors", "format": "dense", "kv_cache_scheme": scheme}
            (made / "config.json").write_text(json.dumps({**config, "quantization_config": recipe}))
            row, = csv.DictReader(io.StringIO(ibid("bench", made, "-p", 8, "-n", 0, "-r", 1, "-o", "csv", *flags)))
            return row["type_k"], row["type_v"]

        float8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
        assert types(float8) == ("f16", "f16")
        assert types(float8, "--kv-dtype", "auto") == ("f8", "f8")
        assert types(float8, "--kv-dtype", "auto", "-ctk", "i8") == ("i8", "i8")
        assert types(None, "--kv-dtype", "auto") == ("f16", "f16")
        types(float8)
        (text := pathlib.Path(folder, "text")).write_text("some words, and then some others " * 3)
        scored = {kv: re.search(r"nll (\S+)", ibid("perplexity", made, "-f", text, "--kv-dtype", kv))[1] for kv in ("auto", "f8", "f16")}
        assert scored["auto"] == scored["f8"] != scored["f16"], scored
        (made / "config.json").write_text(json.dumps({**config, "quantization_config": {
            "quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}}))
        told = ibid("run", made, "-p", "x", *SOME, "--kv-dtype", "auto", code=1)
        assert 'type "NVFP4", which ibid does not have' in told, told


def test_every_error_ends_with_one_full_stop():
    with tempfile.TemporaryDirectory() as folder:
        for words, code in ((("run", "none.gguf"), 1), (("inspect", folder), 1), (("run", "-c", "abc"), 2), (("pull", "hf:x"), 1),
                            (("bench", "-p", "0", "-n", "0"), 2), (("rm", "default-of-nobody"), 1), (("serve", "--max-sequences", "9999999"), 2),
                            (("tokenize", "-m", "none.gguf"), 1), (("quantize", folder, f"{folder}/x.gguf"), 1)):
            told = ibid(*words, code=code)
            assert re.search(r"[^.]\.\n$", told) and told.startswith("error: "), (words, told)


def test_help_is_help():
    plain = ibid("--help")
    assert ibid("help") == plain and ibid("help", "serve") == ibid("serve", "--help") == ibid("serve", "help", "--help")
    for words in ((), ("run",), ("serve",), ("bench",), ("models",), ("selftest",), ("quantize",), ("plan",), ("spec", "find-layers")):
        text = ibid(*words, "--help")
        assert max(len(line) for line in text.split("\n")) <= 120, words
        assert text.count("Usage: ibid") == 1 and IBID not in text and "not supported" not in text, text
    assert "MODEL is" not in ibid("models", "--help") + ibid("selftest", "--help")
    assert ibid("list") == ibid("ls") == ibid("models")


def test_help_has_two_levels_and_one_line_a_flag():
    for command in ("serve", "run"):
        plain, whole = ibid(command, "--help"), ibid(command, "--help-all")
        lines = {flag: line for line in whole.split("\n") if line.startswith("  -") for flag in line.split()[0].split(",")}
        shown = [line for line in plain.split("\n") if line.startswith("  -")]
        assert len(shown) <= 32 and set(shown) <= set(whole.split("\n")), (command, len(shown))
        assert max(map(len, whole.split("\n"))) <= 120 and f"'ibid {command} --help-all' lists all flags." in plain
        assert len(lines) > 50 and "--help-all" in lines, lines
    table = ibid("serve", "--spec", "help")
    assert all(re.search(rf"^  {name} +\S", table, re.M) for name in ("auto", "off", "ngram", "eagle:FILE", "draft:MODEL", "skip:LAYERS")), table
    assert "unknown value 'draft'; expected auto, off, ngram, " in ibid("serve", "--spec", "draft", code=2)


def test_pages_for_newcomers_name_flags_that_exist():
    page = (pathlib.Path(__file__).parents[2] / "docs/users/coming_from.md").read_text(encoding="utf-8")
    ours = " ".join(line.rstrip("| ").rsplit(" | ", 1)[-1] for line in page.split("\n") if line.startswith("| "))
    flags, commands = set(re.findall(r"`(--[a-z-]+)", ours)), set(re.findall(r"`ibid ([a-z]+)", ours))
    known = {flag for line in (ibid("serve", "--help-all") + ibid("quantize", "--help")).split("\n") if line.startswith("  -") for flag in line.split()[0].split(",")}
    assert len(flags) > 40 and flags <= known, flags - known
    assert len(commands) > 8 and all(re.search(rf"^  (\w+, )*{name}\b", ibid("--help"), re.M) for name in commands), commands


def test_models_and_prompts_are_taken_as_others_take_them():
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        said = ibid("run", made, "-p", "Why is it so?", *SOME)
        assert said == ibid("run", made, "Why is it so?", *SOME) == ibid("run", "-m", made, "Why is it so?", *SOME)
        assert said == ibid("run", made, "Why", "is", "it", "so?", *SOME) == ibid("run", "--model", made, "-p", "Why is it so?", *SOME)
        assert "two prompts" in ibid("run", made, "one", "-p", "two", code=2)
        # What is piped in goes after the prompt.
        whole = ibid("run", made, "-p", "Sum up:\n\na text\nof lines", *SOME)
        assert whole == ibid("run", made, "-p", "Sum up:", *SOME, input="a text\nof lines\n")
        assert whole == ibid("run", made, "Sum up:", *SOME, input="a text\nof lines")
        with open(f"{folder}/text", "w+") as file:
            file.write("a text\nof lines\n")
            file.seek(0)
            assert whole == ibid("run", made, "Sum up:", *SOME, stdin=file)
        assert said == ibid("run", made, "-p", "Why is it so?", *SOME, input="")
        raw = ("--raw", "-n", 4, "--seed", 3, "--ignore-eos")
        assert ibid("run", made, "-p", "ab", *raw) == ibid("run", made, "-p", "a", *raw, input="b")
        for name, words in (("tiny", ("-m", made)), ("mine", ("--model", f"mine={made}")), ("tiny", (made,))):
            with Server([IBID, "serve", *words, "--port", 0]) as server:
                assert json.loads(server.get("/v1/models"))["data"][0]["id"] == name
        odd = tiny_model.make(f"{folder}/a=b")
        with Server([IBID, "serve", "-m", odd, "--port", 0]) as server:
            assert json.loads(server.get("/v1/models"))["data"][0]["id"] == "a=b"
        assert ibid("inspect", "-m", made) == ibid("inspect", made)
        assert "excludes" in ibid("inspect", made, "-m", made, code=2)


def test_texts_and_messages_come_as_arguments_files_or_input():
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        text = pathlib.Path(folder, "text")
        text.write_text("Hello world")
        ids = ibid("tokenize", made, input="Hello world")
        for words in ((made, "Hello world"), (made, "Hello", "world"), ("-m", made, "Hello world"), ("-m", made, "-f", text)):
            assert ibid("tokenize", *words) == ids, words
        assert ibid("detokenize", made, *ids.split()) == ibid("detokenize", made, input=ids) == "Hello world"
        assert ibid("detokenize", "-m", made, *ids.split()) == "Hello world"
        messages = pathlib.Path(folder, "messages.json")
        messages.write_text('[{"role": "user", "content": "Hi"}]')
        prompt = ibid("template", made, input=messages.read_text())
        for words in ((made, messages), ("-m", made, messages), (made, "-f", messages), ("-m", made, "--file", messages)):
            assert ibid("template", *words) == prompt and "Hi" in prompt, words
        for command, words in (("tokenize", ("standard", "input")), ("detokenize", ("standard", "input")), ("template", ("standard", "input"))):
            assert " ".join(words) in " ".join(ibid(command, "--help").split())


def bench(made, *flags, code=0):
    return ibid("bench", *flags, *(("-m", made) if made else ()), code=code)


def test_bench_takes_llama_benchs_flags():
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        few = ("-r", 1, "-p", 8, "-n", 4)
        rows = json.loads(bench(made, *few, "-o", "json", "-ngl", 0, "-fa", 1, "-mmp", 1, "-ctk", "f16", "-ctv", "f16", "-b", 64, "-ub", 32))
        assert [(r["n_prompt"], r["n_gen"], r["n_batch"], r["n_ubatch"]) for r in rows] == [(8, 0, 64, 32), (0, 4, 64, 32)], rows
        keys = {"build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type", "model_size",
                "model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "flash_attn", "use_mmap",
                "embeddings", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns",
                "samples_ts"}
        assert keys <= set(rows[0]), keys - set(rows[0])
        lines = [json.loads(line) for line in bench(made, *few, "-o", "jsonl", "-t", "1,2", "-pg", "8,4", "--no-warmup").splitlines()]
        tests = [(r["n_threads"], r["n_prompt"], r["n_gen"]) for r in lines]
        assert tests == [(t, *test) for t in (1, 2) for test in ((8, 0), (8, 4), (0, 4))], tests
        assert all(abs(r["avg_ts"] * r["avg_ns"] / 1e9 - (r["n_prompt"] + r["n_gen"])) < 0.01 for r in lines), lines
        table = list(csv.DictReader(io.StringIO(bench(made, *few, "-o", "csv", "-ctk", "f16,bf16"))))
        assert [r["type_k"] for r in table] == ["f16", "f16", "bf16", "bf16"] and keys - set(table[0]) == {"samples_ns", "samples_ts"}
        rows = json.loads(bench(made, "-r", 1, "-p", 4, "-n", 0, "-o", "json", "-ctk", "f16,i8", "-ctv", "i4"))
        assert [(r["type_k"], r["type_v"]) for r in rows] == [("f16", "i4"), ("i8", "i4")], rows
        rows = json.loads(bench(made, "-r", 1, "-p", 4, "-n", 0, "-o", "json", "-ctk", "i8i4,i4"))
        assert [(r["type_k"], r["type_v"]) for r in rows] == [("i8", "i4"), ("i4", "i4")], rows
        shown = bench(made, "-r", 1, "-p", "4-8*2", "-n", 0, "-ub", "4,8", "-d", 4)
        assert shown.count("| pp4 @ d4 |") == 2 and shown.count("| pp8 @ d4 |") == 2 and "n_ubatch" in shown, shown
        assert bench(f"{made},{made}", "-r", 1, "-p", 4, "-n", 0).count("pp4") == 2
        for flags, sentence in ((("-ngl", 99), '--n-gpu-layers: "99" is not supported: models run on the CPU; expected 0; '),
                                (("-ctk", "q8_0"), 'unknown value "q8_0"; expected f32, f16, bf16, f8, i8, i8i4, i4, or one of keys and one of values as f16:i8'),
                                (("-fa", 0), "--flash-attn: "), (("-mmp", 0), "--mmap: "),
                                (("-sm", "layer"), "--split-mode"), (("-rpc", "host:1"), "--rpc"), (("-ot", "x=CPU"), "--override-tensor"),
                                (("-o", "sql"), "sql"), (("-pg", 8), "expected PROMPT,ANSWER"), (("-t", "1,x"), "whole number")):
            told = bench(made, *flags, code=2)
            assert sentence in told, (flags, told)
        for command in ("run", "serve"):
            assert "--n-gpu-layers: " in ibid(command, "-m", made, "-ngl", 99, code=2)
        each = [ibid("run", "-m", made, "-p", "x", *SOME, *flags) for flags in (("--kv-dtype", "i8:i4"), ("--kv-dtype", "i8i4"), ("-ctv", "i4", "-ctk", "i8"))]
        assert each[0] == each[1] == each[2], each
        said = ibid("run", "-m", made, "-p", "x", *SOME)
        assert said == ibid("run", "-m", made, "-p", "x", *SOME, "-ngl", 0, "-fa", "on", "-ctk", "f16", "-ctv", "f16")


def test_perplexity_scores_the_whole_text_and_compares():
    with tempfile.TemporaryDirectory() as folder:
        made, other = tiny_model.make(f"{folder}/tiny"), tiny_model.make(f"{folder}/other", 64)
        text = pathlib.Path(folder, "text")
        text.write_text("Some words that go on and on. " * 20)
        n = len(ibid("tokenize", made, "-f", text).split())
        whole = ibid("perplexity", made, "-f", text, "-c", 64)
        assert f"tokens {n - 1}  perplexity " in whole and "windows of 64 tokens, 32 scored in each" in whole, (n, whole)
        assert "windows of 64 tokens, 8 scored" in ibid("perplexity", made, "-f", text, "-c", 64, "--stride", 8)
        part = ibid("perplexity", made, "-f", text, "-c", 64, "-n", 50)
        assert "tokens 49 " in part and f"{n - 50} of the text's {n} tokens are left out" in part, part
        assert "leaves nothing" in ibid("perplexity", made, "-f", text, "-c", 64, "--stride", 64, code=2)
        same = ibid("perplexity", made, "-f", text, "-c", 64, "--base", made)
        assert "nll above it +0.000000 +- 0.000000" in same and "KL divergence 0.000000 +- 0.000000, at most 0.0000" in same, same
        assert "same first choice 100.00 %" in same
        compared = ibid("perplexity", made, "-f", text, "-c", 64, "--base", other)
        nll = [float(x) for x in re.findall(r"nll ([0-9.]+) ", compared)]
        above = float(re.search(r"nll above it ([-+0-9.]+)", compared).group(1))
        assert abs(nll[0] - nll[1] - above) < 1e-5 and float(re.search(r"KL divergence ([0-9.]+)", compared).group(1)) > 0, compared


def lines_of(path):
    return pathlib.Path(path).read_text().splitlines()


def test_every_message_of_a_server_has_a_time_and_reaches_its_log():
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        (made / "generation_config.json").write_text(json.dumps({"temperature": -3}))  # which is told and not used
        for flags in ((), ("--log-json",)):
            log = f"{folder}/log{len(flags)}"
            server = subprocess.Popen([IBID, "serve", str(made), "--port", "0", "--log-file", log, *flags], stderr=subprocess.PIPE, text=True)
            eventually(lambda: any("Serving tiny" in line for line in lines_of(log)) if os.path.exists(log) else False)
            server.send_signal(signal.SIGTERM)
            _, told = server.communicate(timeout=600)
            assert server.returncode == 0 and told == "", told
            lines = lines_of(log)
            if flags:
                events = [json.loads(line) for line in lines]
                warning = [e for e in events if e.get("level") == "warning"]
                assert len(warning) == 1 and warning[0]["event"] == "server" and "generation_config.temperature" in warning[0]["message"], events
                assert all(re.fullmatch(stamp.strip(), e["time"]) for e in events)
            else:
                assert all(re.match(stamp, line) for line in lines), lines
                assert any(re.match(stamp + "warning The model's generation_config.temperature is not used", line) for line in lines), lines
                about = [line for line in lines if " tiny: tiny, " in line]
                assert len(about) == 1 and re.search(r"\d+ tokens of context, \d+ threads, \w+ kernels, .* of memory, of it .* for keys", about[0])
                assert any(line.endswith("Ended.") for line in lines) and any(" Draining: " in line for line in lines)
        (made / "model.safetensors").write_bytes(b"")
        told = ibid("serve", made, "--port", 0, "--log-file", f"{folder}/broken", code=4)
        assert " error " in lines_of(f"{folder}/broken")[-1] and lines_of(f"{folder}/broken")[-1].split(" error ")[1] in told


if __name__ == "__main__":
    main(test_a_wrong_command_or_flag_suggests_the_right_one, test_a_folders_recipe_chooses_the_types_of_keys_and_values,
         test_every_error_ends_with_one_full_stop, test_help_is_help,
         test_help_has_two_levels_and_one_line_a_flag, test_pages_for_newcomers_name_flags_that_exist,
         test_models_and_prompts_are_taken_as_others_take_them, test_texts_and_messages_come_as_arguments_files_or_input,
         test_bench_takes_llama_benchs_flags, test_perplexity_scores_the_whole_text_and_compares,
         test_every_message_of_a_server_has_a_time_and_reaches_its_log)
