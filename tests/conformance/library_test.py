"""The shared library and each class of the Python package over a tiny model. library_test.py BUILD_DIR."""
import asyncio
import json
import os
import pathlib
import pickle
import re
import shutil
import string
import subprocess
import sys
import tempfile
import threading

import tiny_model
from adapters_test import adapter
from harness import BUILD, IBID, ROOT, Server, main

os.environ["IBID_LIBRARY"] = str(BUILD / "libibid.so.1")
os.environ["IBID_PROGRAM"] = IBID
sys.path.insert(0, str(ROOT / "python"))
import ibid  # noqa: E402
from ibid.llama_cpp import Llama  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
MODEL = str(tiny_model.make(pathlib.Path(FOLDER.name) / "tiny"))
GREEDY = ibid.SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
SEEDED = ibid.SamplingParams(temperature=1, seed=7, max_tokens=12, ignore_eos=True)


def llm(**options):
    return ibid.LLM(MODEL, threads=1, ctx=1024, **options)


def texts(outputs):
    return [one.text for output in outputs for one in output.outputs]


def raised(kind, call, *arguments, **more):
    """The exception of that kind that a call raises."""
    try:
        call(*arguments, **more)
    except kind as error:
        return error
    raise AssertionError(f"{call} raised no {kind.__name__}")


def test_the_library_exports_its_functions_alone():
    header = (ROOT / "include/ibid.h").read_text()
    promised = set(re.findall(r"IBID_API [^;(]*?\b(ibid_\w+)\(", header))
    told = subprocess.run(["nm", "-D", "--defined-only", BUILD / "libibid.so.1"], capture_output=True, text=True, check=True)
    found = {line.split()[2].split("@")[0] for line in told.stdout.splitlines() if line.split()[1] in "TDBVWi"}
    assert found == promised, found ^ promised
    needed = subprocess.run(["readelf", "-d", BUILD / "libibid.so.1"], capture_output=True, text=True, check=True).stdout
    assert "libstdc++" not in needed and "[libibid.so.1]" in needed, needed


def test_temperature_0_twice_is_the_same_and_a_seed_too():
    with llm() as one:
        for params in (GREEDY, SEEDED):
            first, second = (one.generate(["Once", "Twice"], params) for _ in range(2))
            assert [o.outputs for o in first] == [o.outputs for o in second]
            assert all(len(o.outputs[0].token_ids) == 12 and o.outputs[0].finish_reason == "length" for o in first)
        assert texts(first) != texts(one.generate(["Once", "Twice"], GREEDY))


def test_200_prompts_at_once_are_200_calls_and_in_order():
    prompts = [f"Prompt {i} " + "long " * (i % 7) for i in range(200)]
    params = [ibid.SamplingParams(temperature=0.9, seed=i, max_tokens=1 + i % 23, ignore_eos=True) for i in range(200)]
    with llm(max_num_seqs=16) as one:
        together = one.generate(prompts, params)
        alone = [one.generate(prompt, own)[0] for prompt, own in zip(prompts, params)]
        assert [o.prompt for o in together] == prompts
        assert [o.outputs for o in together] == [o.outputs for o in alone]
        assert [len(o.outputs[0].token_ids) for o in together] == [own.max_tokens for own in params]
        assert len(set(texts(together))) > 100  # that they are equal says something


def test_an_iterator_of_prompts_is_held_in_part_alone():
    taken = 0

    def source():
        nonlocal taken
        for i in range(5000):
            taken += 1
            yield f"prompt {i}"

    with llm(max_num_seqs=4) as one:
        outputs = one.generate_iter(source(), ibid.SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))
        for i, output in zip(range(50), outputs):
            assert output.prompt == f"prompt {i}" and taken <= i + 1 + 16, (i, taken)
        outputs.close()
        assert len(one.generate("And on", GREEDY)) == 1
        before = taken
        assert before < 100


def test_more_prompts_than_the_queue_holds_wait_for_room():
    with llm(max_num_seqs=4, max_waiting=1) as one:
        outputs = one.generate([str(i) for i in range(40)], ibid.SamplingParams(n=2, seed=1, max_tokens=3, ignore_eos=True))
        assert [o.prompt for o in outputs] == [str(i) for i in range(40)] and all(len(o.outputs) == 2 for o in outputs)


def test_prompts_are_texts_ids_or_objects():
    with llm() as one:
        ids = one.get_tokenizer().encode("Once")
        forms = ["Once", ids, {"prompt": "Once"}, {"prompt_token_ids": ids}]
        assert len(set(texts(one.generate(forms, GREEDY)))) == 1
        assert texts(one.generate(ids, GREEDY)) == texts(one.generate("Once", GREEDY))
        assert one.generate([], GREEDY) == []
        assert one.get_tokenizer().decode(ids) == "Once"
        assert raised(ValueError, one.generate, {"text": "Once"})
        assert "2 prompts and 1" in str(raised(ValueError, one.generate, ["a", "b"], [GREEDY]))


def test_logprobs_are_those_of_the_server():
    with llm() as one:
        params = ibid.SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=2, ignore_eos=True)
        output = one.generate("Once", params)[0]
        answer = output.outputs[0]
        assert len(answer.logprobs) == 5 and all(t in of and len(of) == 3 for t, of in zip(answer.token_ids, answer.logprobs))
        told = one.engine.ask("/v1/completions", {**params.body(chat=False), "prompt": "Once"})["choices"][0]
        assert [of[t].logprob for t, of in zip(answer.token_ids, answer.logprobs)] == told["logprobs"]["token_logprobs"]
        assert abs(answer.cumulative_logprob - sum(told["logprobs"]["token_logprobs"])) < 1e-6
        assert len(output.prompt_logprobs) == 4 and output.prompt_logprobs[0] is None and len(output.prompt_logprobs[1]) >= 2
        chat = one.chat([{"role": "user", "content": "Hi"}], params)[0].outputs[0]
        assert len(chat.logprobs) == 5 and all(t in of for t, of in zip(chat.token_ids, chat.logprobs))
        try:
            import numpy
        except ImportError:
            return "without numpy"
        array = answer.logprobs_array()
        assert array.dtype == numpy.float32 and array.shape == (5,)


def test_chats_are_those_of_the_server_and_guided():
    message = [{"role": "user", "content": "Say something."}]
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    with llm() as one:
        output = one.chat(message, GREEDY)[0]
        told = one.engine.ask("/v1/chat/completions", {**GREEDY.body(chat=True), "messages": message})
        assert output.outputs[0].text == told["choices"][0]["message"]["content"] == output.outputs[0].message["content"]
        both = one.chat([message, [{"role": "user", "content": "Else."}]], GREEDY)
        assert texts(both)[0] == output.outputs[0].text != texts(both)[1]

        class Model:  # as a pydantic class
            @staticmethod
            def model_json_schema():
                return schema

        for wanted in (schema, Model):
            guided = ibid.SamplingParams(seed=3, max_tokens=200, structured_outputs=ibid.StructuredOutputsParams(json=wanted))
            assert set(json.loads(one.chat(message, guided)[0].outputs[0].text)) == {"a"}
        choice = ibid.SamplingParams(seed=3, structured_outputs=ibid.StructuredOutputsParams(choice=["yes", "no"]))
        assert all(text in ("yes", "no") for text in texts(one.generate(["a", "b", "c"], choice)))
        assert "exactly one" in str(raised(ValueError, ibid.StructuredOutputsParams(regex="a", grammar="b").body))


def test_functions_of_python_change_logits():
    seen = []

    def only_even(answer, logits):
        seen.append(len(answer))
        for i in range(1, len(logits), 2):
            logits[i] = -1e30

    def not_again(prompt, answer, logits):
        changed = [-1e30 if i in answer else value for i, value in enumerate(logits)]
        assert prompt and len(changed) == len(logits)
        return changed

    def fails(answer, logits):
        if len(answer) == 3:
            raise KeyError("mine")

    with llm() as one:
        plain = one.generate("Once", SEEDED)[0].outputs[0].token_ids
        params = ibid.SamplingParams(temperature=1, seed=7, max_tokens=12, ignore_eos=True, logits_processors=[only_even, not_again])
        first, beside, second = one.generate(["Once", "Once", "Once"], [params, SEEDED, params])
        ids = first.outputs[0].token_ids
        assert first.outputs == second.outputs and beside.outputs[0].token_ids == plain != ids
        assert all(token % 2 == 0 for token in ids) and len(set(ids)) == 12 and set(range(12)) <= set(seen)
        error = raised(ibid.InvalidError, one.generate, "Once", ibid.SamplingParams(max_tokens=9, ignore_eos=True, logits_processors=[fails]))
        assert "logits processor failed" in str(error) and isinstance(error.__cause__, KeyError), error.__cause__
        assert one.generate("Once", SEEDED)[0].outputs[0].token_ids == plain

        async def stream(one):
            return [output async for output in one.generate("Once", params)][-1].outputs[0].token_ids
    with ibid.AsyncLLM(MODEL, threads=1, ctx=1024) as streams:
        assert asyncio.run(stream(streams)) == ids
    with Llama(MODEL, n_ctx=1024, n_threads=1) as other:
        ids_then = other.tokenize(b"Once")
        answer = other("Once", max_tokens=6, seed=7, ignore_eos=True, return_token_ids=True,
                       logits_processor=[lambda ids, scores: only_even(ids, scores) if ids[:len(ids_then)] == ids_then else None])
        assert all(token % 2 == 0 for token in answer["choices"][0]["token_ids"])


def test_adapters_are_loaded_when_they_are_first_named():
    with tempfile.TemporaryDirectory() as folder:
        path = adapter(pathlib.Path(folder) / "a", 1)
        with llm(enable_lora=True, max_loras=2) as one:
            asked = ibid.LoRARequest("one", 1, str(path))
            plain, with_it = one.generate("Once", GREEDY)[0], one.generate(["Once", "Once"], GREEDY, lora_request=asked)
            assert with_it[0].outputs == with_it[1].outputs != plain.outputs
            message = [{"role": "user", "content": "Hi"}]
            assert one.chat(message, GREEDY, lora_request=asked)[0].outputs != one.chat(message, GREEDY)[0].outputs
            assert "lora_requests_info{" in one.engine.metrics()
            raised(ibid.IbidError, one.generate, "Once", GREEDY, lora_request=ibid.LoRARequest("two", 2, folder + "/none"))
        with llm() as one:
            raised(ibid.IbidError, one.generate, "Once", GREEDY, lora_request=asked)


def test_vectors_are_those_of_the_server():
    with llm() as one:
        outputs = one.embed(["one text", "another", "one text"])
        told = one.engine.ask("/v1/embeddings", {"input": "another"})["data"][0]["embedding"]
        assert all(abs(a - b) < 1e-6 for a, b in zip(outputs[1].outputs.embedding, told, strict=True))
        assert outputs[0].outputs.embedding == outputs[2].outputs.embedding != outputs[1].outputs.embedding
        assert one.embed([1, 2, 3])[0].prompt_tokens == 3
        raised(ibid.InvalidError, one.score, "a", "b")  # the model is no cross-encoder
        assert "3 first texts" in str(raised(ValueError, one.score, ["a", "b", "c"], ["d", "e"]))


def ranker():
    """The golden cross-encoder with letters as its words."""
    folder = pathlib.Path(FOLDER.name) / "ranker"
    shutil.copytree(ROOT / "tests/golden/bert_rank", folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase
    words = special + list(letters) + ["##" + letter for letter in letters]
    around = lambda name: {name: {"id": name, "ids": [special.index(name)], "tokens": [name]}}  # noqa: E731
    token, text = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}, lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "added_tokens": [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for i, name in enumerate(special)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)],
                           "pair": [token("[CLS]", 0), text("A", 0), token("[SEP]", 0), text("B", 1), token("[SEP]", 1)],
                           "special_tokens": {**around("[CLS]"), **around("[SEP]")}},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(words)}}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]",
        "mask_token": "[MASK]", "do_lower_case": True}))
    return str(folder)


def test_scores_are_those_of_the_server_and_in_order():
    documents = ["first", "second", "third one"]
    with ibid.LLM(ranker(), threads=1) as one:
        scores = [output.outputs.score for output in one.score("a query", documents)]
        told = one.engine.ask("/v1/score", {"text_1": "a query", "text_2": documents})["data"]
        assert scores == [row["score"] for row in told] and len(set(scores)) == 3, scores
        assert [output.outputs.score for output in one.score(["a query"] * 3, documents)] == scores


def test_errors_have_the_engines_sentences():
    error = raised(ibid.InvalidError, ibid.LLM, MODEL, ctxx=5)
    assert "--ctx" in str(error) and isinstance(error, ValueError)
    assert raised(ibid.UnsupportedError, ibid.LLM, MODEL, api_key="secret").field == "api_key"
    raised(ibid.NotFoundError, ibid.LLM, "/nowhere/at/all.gguf")
    assert "tensor_parallel_size" in str(raised(ValueError, ibid.LLM, MODEL, tensor_parallel_size=2))
    with llm() as one:
        error = raised(ibid.InvalidError, one.generate, ["fine", "a"], [GREEDY, ibid.SamplingParams(temperature=-1)])
        assert error.field == "temperature" and json.loads(error.body)["error"]["param"] == "temperature"
        assert pickle.loads(pickle.dumps(error)).field == "temperature"
        raised(ibid.InvalidError, one.generate, "long " * 1000, GREEDY)
        raised(TypeError, pickle.dumps, one.engine)
        assert len(one.generate("And on", GREEDY)) == 1
        assert "# TYPE ibid_" in one.engine.metrics()
    raised(ibid.ClosedError, one.generate, "a")
    one.close()


def test_a_forked_child_is_refused_and_may_open_its_own():
    with llm() as one:
        child = os.fork()
        if child == 0:
            try:
                error = raised(ibid.ForkedError, one.generate, "a")
                one.close()
                with llm() as own:
                    ok = "fork" in str(error) and len(own.generate("a", GREEDY)) == 1
            except BaseException:
                ok = False
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(one.generate("a", GREEDY)) == 1


def test_async_streams_grow_to_what_a_call_answers_and_may_be_left():
    async def whole(one, prompt, params):
        outputs = [output async for output in one.generate(prompt, params)]
        assert outputs[-1].finished and not outputs[0].finished
        assert all(b.outputs[0].text.startswith(a.outputs[0].text) for a, b in zip(outputs, outputs[1:]))
        return outputs[-1].outputs[0]

    async def run(one):
        got = await asyncio.gather(*(whole(one, f"p{i}", ibid.SamplingParams(seed=i, max_tokens=20, ignore_eos=True)) for i in range(20)))
        chat = [output async for output in one.chat([{"role": "user", "content": "Hi"}], GREEDY)][-1].outputs[0]
        long = ibid.SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)
        async for output in one.generate("left", long):  # its request is cancelled
            break
        task = asyncio.create_task(whole(one, "cancelled", long))
        await asyncio.sleep(0)
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError), results
        try:
            await whole(one, "a", ibid.SamplingParams(top_p=7))
            raise AssertionError("no error")
        except ibid.InvalidError as error:
            assert error.field == "top_p"
        assert b"chat.completion" in await one.call("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
        return got, chat

    with ibid.AsyncLLM(MODEL, threads=1, ctx=1024) as one:
        got, chat = asyncio.run(run(one))
    with llm() as one:
        for i, answer in enumerate(got):
            assert answer == one.generate(f"p{i}", ibid.SamplingParams(seed=i, max_tokens=20, ignore_eos=True))[0].outputs[0]
        same = one.chat([{"role": "user", "content": "Hi"}], GREEDY)[0].outputs[0]
        assert (chat.text, chat.token_ids) == (same.text, same.token_ids)


def test_a_script_of_llama_cpp_changes_one_import():
    with Llama(model_path=MODEL, n_ctx=512, n_gpu_layers=-1, verbose=False, seed=5) as model:
        first, second = (model("Once", max_tokens=8, temperature=0, stop=["\n\n"])["choices"][0]["text"] for _ in range(2))
        assert first == second
        streamed = [event["choices"][0]["text"] for event in model("Once", max_tokens=8, temperature=0, stream=True)]
        assert "".join(streamed) == model("Once", max_tokens=8, temperature=0)["choices"][0]["text"]
        chat = model.create_chat_completion(messages=[{"role": "user", "content": "Hi"}], max_tokens=5)
        assert chat["choices"][0]["message"]["role"] == "assistant"
        ids = model.tokenize(b"Once", add_bos=False)
        assert model.detokenize(ids) == b"Once" and model.n_ctx() == 512
        assert len(model.embed("a")) == 32 and len(model.embed(["a", "b"])) == 2
        assert abs(sum(x * x for x in model.embed("a", normalize=True)) - 1) < 1e-5
        assert len(model.create_embedding(["a", "b"])["data"]) == 2
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
        held = model.create_chat_completion([{"role": "user", "content": "Hi"}], response_format={"type": "json_object", "schema": schema})
        assert set(json.loads(held["choices"][0]["message"]["content"])) == {"a"}
        assert "stopping_criteria" in str(raised(ValueError, model, "a", stopping_criteria=[len]))


def test_the_library_answers_with_the_bytes_of_the_server():
    body = {"prompt": "Once", "seed": 9, "max_tokens": 12, "ignore_eos": True, "logprobs": 2}
    with llm() as one:
        own = one.engine.ask("/v1/completions", body)
        with Server([IBID, "serve", MODEL, "--port", 0, "--threads", 1, "--ctx", 1024]) as server:
            served = server.post("/v1/completions", body)
    for name in ("id", "created"):
        assert own.pop(name) and served.pop(name)
    assert own == served


def test_threads_share_an_engine_and_ctrl_c_ends_a_call():
    with llm() as one:
        alone = {i: texts(one.generate(str(i), GREEDY)) for i in range(6)}
        wrong = []

        def work(i):
            for _ in range(5):
                if texts(one.generate(str(i), GREEDY)) != alone[i]:
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in alone]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
    # A signal is taken while the main thread waits: the child sends it to itself once the answer has begun.
    script = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import ibid
with ibid.LLM(sys.argv[1], threads=1, ctx=4096) as one:
    prompts = iter([("a")] * 1000000)
    def source():
        for i, prompt in enumerate(prompts):
            if i == 300:
                os.kill(os.getpid(), signal.SIGINT)
            yield prompt
    try:
        for _ in one.generate_iter(source(), ibid.SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)):
            pass
    except KeyboardInterrupt:
        print("stopped", len(one.generate("b", ibid.SamplingParams(temperature=0))))
"""
    done = subprocess.run([sys.executable, "-c", script, MODEL, str(ROOT / "python")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "stopped 1\n", done


def test_the_page_for_users_runs():
    page = (ROOT / "docs/users/library.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block.replace('"default"', repr(MODEL))], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        assert done.returncode == 0, (block, done.stderr)
    found = re.search(r"```c\n(.*?)```", page, re.DOTALL)[1]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "page.c"
        source.write_text(found.replace('\\"default\\"', f'\\"{MODEL}\\"'))
        program = pathlib.Path(folder) / "page"
        compiler = os.environ.get("CC", "cc")
        done = subprocess.run([compiler, "-Wall", "-Werror", f"-I{ROOT / 'include'}", source, f"-L{BUILD}", "-libid",
                               f"-Wl,-rpath,{BUILD}", "-o", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        done = subprocess.run([program], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 and '"choices"' in done.stdout, done


if __name__ == "__main__":
    main(*(value for name, value in list(globals().items()) if name.startswith("test_")))
