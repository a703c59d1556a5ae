"""The real lm-evaluation-harness on tasks of generated data: by ibid's own model, twice and at once, and through the server.
lm_eval_test.py BUILD_DIR. Installs lm_eval: by hand."""
import json
import os
import pathlib
import random
import subprocess
import tempfile

import tiny_model
from harness import BUILD, IBID, ROOT, Server, main, venv

FOLDER = tempfile.TemporaryDirectory()
HERE = pathlib.Path(FOLDER.name)
MODEL = str(tiny_model.make(HERE / "tiny"))
TASKS = "generated_choice,generated_text,generated_answer"

COMMON = """
dataset_path: json
dataset_kwargs: {data_files: {test: %s/data.json}}
test_split: test
num_fewshot: 0
"""
CHOICE = """task: generated_choice
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{right}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
TEXT = """task: generated_text
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
"""
ANSWER = """task: generated_answer
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["e"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
"""


def make_tasks():
    rng = random.Random(1)
    words = lambda n: " ".join("".join(rng.choices("abcdefgh", k=rng.randint(1, 6))) for _ in range(n))  # noqa: E731
    rows = [{"question": words(8) + "?", "choices": [" " + words(3) for _ in range(4)], "right": rng.randrange(4),
             "text": words(rng.randint(20, 300)), "answer": words(1)} for _ in range(40)]
    (HERE / "data.json").write_text("\n".join(json.dumps(row) for row in rows))
    (HERE / "tasks").mkdir()
    for name, text in (("choice", CHOICE), ("text", TEXT), ("answer", ANSWER)):
        (HERE / "tasks" / f"{name}.yaml").write_text(text + COMMON % HERE)


def evaluate(name, command, *arguments, tasks=TASKS):
    """The numbers of each task, and the log of its samples without what is of the run."""
    out = HERE / name
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "IBID_LIBRARY": str(BUILD / "libibid.so.1"),
                   "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(HERE / "hf"), "OPENAI_API_KEY": "none"}
    done = subprocess.run([*map(str, command), "--include_path", HERE / "tasks", "--tasks", tasks, "--output_path", out, "--log_samples",
                           *map(str, arguments)], capture_output=True, text=True, timeout=900, env=environment, cwd=HERE)
    assert done.returncode == 0, done.stderr[-1500:]
    (results,) = out.rglob("results_*.json")
    numbers = {task: {key: value for key, value in of.items() if "stderr" not in key and isinstance(value, float)}
               for task, of in json.loads(results.read_text())["results"].items()}
    samples = {}
    for path in out.rglob("samples_*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        samples[path.name.split("_2")[0]] = [(row["doc_id"], row["resps"]) for row in rows]
    return numbers, samples


def test_the_harness_finds_the_same_numbers_each_time_and_through_the_server():
    programs = venv("venv-lm-eval", "lm_eval[api]==0.4.13")
    make_tasks()
    own = [programs / "python", "-m", "ibid.lm_eval", "--model", "ibid"]
    first, samples = evaluate("one", own, "--model_args", f"model={MODEL},ctx=512,threads=1")
    assert {task for task in first} == set(TASKS.split(",")) and len(samples) == 3, first
    assert 0 <= first["generated_choice"]["acc,none"] <= 1 and first["generated_text"]["word_perplexity,none"] > 1, first
    again, same = evaluate("two", own, "--model_args", f"model={MODEL},ctx=512,threads=2,max_num_seqs=3")
    assert (again, same) == (first, samples), (again, first)
    with Server([IBID, "serve", MODEL, "--port", 0, "--ctx", 512, "--threads", 1]) as server:
        through = [programs / "lm_eval", "--model", "local-completions"]
        model = f"model=tiny,base_url={server.url}/v1/completions,tokenizer_backend=remote,tokenized_requests=True,max_length=512"
        told, other = evaluate("three", through, "--model_args", model, tasks="generated_choice,generated_answer")
    for task in told:
        assert told[task] == first[task], (task, told[task], first[task])
    assert other["samples_generated_answer"] == samples["samples_generated_answer"]
    return json.dumps(first)


if __name__ == "__main__":
    main(test_the_harness_finds_the_same_numbers_each_time_and_through_the_server)
