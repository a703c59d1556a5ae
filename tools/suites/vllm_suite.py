"""A pytest plugin that runs vLLM's tests of its server against `ibid serve`, where neither vLLM nor PyTorch is installed:

    pytest -p vllm_suite --confcutdir=tests/entrypoints tests/entrypoints/openai/completion/test_completion.py

It maps start-up flags and model files, no request and no answer. `tests.utils` is replaced by what starts the server; modules of vLLM
that a test imports are read from its own sources as far as they can be without PyTorch, and else are empty: a test that looks into one
of those fails. docs/developers/suites.md describes its use.

IBID                the program (ibid)
IBID_SUITE_MODELS   JSON object: a pattern of shell wildcards for a model's name to its path; the first that fits
IBID_SUITE_TOKENIZER  a folder with the tokenizer of transformers of the model that answers, for tests that count tokens
"""
import fnmatch
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import types

import pytest

SOURCES = pathlib.Path(os.environ.get("VLLM_SOURCES", "."))

# What has no counterpart because ibid does it always, chooses it itself, or has nothing that it could change; with the values it takes.
ALWAYS = {"--enforce-eager": 0, "--dtype": 1, "--gpu-memory-utilization": 1, "--runner": 1, "--enable-auto-tool-choice": 0,
          "--tool-call-parser": 1, "--reasoning-parser": 1, "--trust-remote-code": 0, "--no-enable-prefix-caching": 0,
          "--enable-prefix-caching": 0, "--enable-prompt-tokens-details": 0, "--enable-chunked-prefill": 0, "--seed": 1,
          "--enable-server-load-tracking": 0, "--enable-tokenizer-info-endpoint": 0, "--disable-uvicorn-access-log": 0,
          "--structured-outputs-config.backend": 1, "--attention-backend": 1, "--no-async-scheduling": 0, "--load-format": 1,
          "--enable-request-id-headers": 0, "--trust-request-chat-template": 0, "--hf-overrides": 1, "--tensor-parallel-size": 1,
          "--reasoning-config": 1, "--enable-per-request-metrics": 0, "--chat-template-content-format": 1, "--convert": 1, "--show-hidden-metrics-for-version": 1,
          # adapters are not served; the tests that ask for one by its name do so of the model
          "--enable-lora": 0, "--lora-modules": 1, "--max-lora-rank": 1, "--max-cpu-loras": 1}
SAME = {"--max-model-len": "--ctx", "--max-num-seqs": "--max-sequences", "--max-num-batched-tokens": "--max-tokens-per-step",
        "--port": "--port", "--host": "--host", "--uds": "--uds", "--root-path": "--root-path", "--api-key": "--api-key",
        "--max-logprobs": "--max-logprobs", "--ssl-certfile": "--ssl-certfile", "--ssl-keyfile": "--ssl-keyfile"}

FLAGS = ("--enable-force-include-usage", "--return-tokens-as-token-ids")


def model_path(name):
    for pattern, path in json.loads(os.environ.get("IBID_SUITE_MODELS", "{}")).items():
        if fnmatch.fnmatch(name, pattern):
            return path
    return os.path.expanduser("~/.cache/ibid/models/SmolLM2-135M-Instruct.Q4_1.gguf")


def translate(model, args):
    """The arguments of `ibid serve`."""
    out, names = [], [model]
    split = [arg.split("=", 1) if arg.startswith("--") else [arg] for arg in args]
    words = iter(a for first, *rest in split for a in ((first.replace("_", "-") if first.startswith("--") else first), *rest))
    for word in words:
        if word in SAME:
            if SAME[word] in out:  # the last one counts
                at = out.index(SAME[word])
                del out[at:at + 2]
            out += [SAME[word], next(words)]
        elif word == "--served-model-name":
            names = [next(words)]
        elif word == "--model":
            model = next(words)
            names = [model]
        elif word in FLAGS:
            out.append(word)
        elif word == "--chat-template":
            text = next(words)
            if not os.path.exists(text):
                file = tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False)
                file.write(text)
                file.close()
                text = file.name
            out += ["--chat-template", text]
        elif word == "--pooler-config":
            pooling = json.loads(next(words)).get("pooling_type") or json.loads("{}").get("seq_pooling_type")
            out += ["--pooling", pooling.lower()] if pooling else []
        elif word == "--pooler-config.task":
            if next(words) == "token_embed":
                out += ["--pooling", "none"]
        elif word in ALWAYS:
            for _ in range(ALWAYS[word]):
                next(words)
        else:
            raise RuntimeError(f"ibid has nothing for {word}")
    if "--max-logprobs" in out:  # -1: as many as the vocabulary has
        asked = int(out[out.index("--max-logprobs") + 1])
        out[out.index("--max-logprobs") + 1] = str(1000 if asked < 0 else min(asked, 1000))
    path = model_path(model)
    if os.path.exists(os.path.join(path, "vocab.txt")):  # an encoder reads a text whole, 512 tokens of it
        at = out.index("--ctx") + 1 if "--ctx" in out else None
        if at and int(out[at]) > 512:
            raise RuntimeError(f"the encoder at hand has no context of {out[at]}")
    elif "--ctx" in out:  # what the model at hand has
        out[out.index("--ctx") + 1] = str(min(8192, int(out[out.index("--ctx") + 1])))
    return [*out, "--model", f"{names[0]}={path}", "--metrics-names", "vllm"]


class RemoteOpenAIServer:
    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model, vllm_serve_args, *, env_dict=None, seed=0, auto_port=True, max_wait_seconds=None,
                 override_hf_configs=None):
        args = list(vllm_serve_args)
        self.host, self.uds = "127.0.0.1", args[args.index("--uds") + 1] if "--uds" in args else None
        if auto_port and self.uds is None:
            args += ["--port", str(free_port())]
        if self.uds is None:
            self.port = int(args[args.index("--port") + 1])
        if "--host" in args:
            self.host = args[args.index("--host") + 1]
        self.show_hidden_metrics = False
        command = [os.environ.get("IBID", "ibid"), "serve", *translate(model, args)]
        print(" ".join(command), flush=True)
        env = {**os.environ, **(env_dict or {})}
        if "VLLM_API_KEY" in env:
            env["IBID_API_KEY"] = env["VLLM_API_KEY"]
        self.proc = subprocess.Popen(command, env=env)
        self._wait()

    def _wait(self):
        import httpx
        transport = httpx.HTTPTransport(uds=self.uds) if self.uds else None
        with httpx.Client(transport=transport) as client:
            for _ in range(600):
                if self.proc.poll() is not None:
                    raise RuntimeError("The server ended at its start.")
                try:
                    if client.get(self.url_for("health")).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.1)
        raise RuntimeError("The server was not ready in a minute.")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.terminate()
        try:
            self.proc.wait(10)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()

    @property
    def url_root(self):
        return f"http://{self.uds.split('/')[-1]}" if self.uds else f"http://{self.host}:{self.port}"

    def url_for(self, *parts):
        return "/".join([self.url_root, *(part.strip("/") for part in parts if part)])

    def get_client(self, **kwargs):
        import openai
        return openai.OpenAI(base_url=self.url_for("v1"), api_key=self.DUMMY_API_KEY, max_retries=0, **{"timeout": 600, **kwargs})

    def get_async_client(self, **kwargs):
        import openai
        return openai.AsyncOpenAI(base_url=self.url_for("v1"), api_key=self.DUMMY_API_KEY, max_retries=0, **{"timeout": 600, **kwargs})

    def get_client_anthropic(self, **kwargs):
        import anthropic
        return anthropic.Anthropic(base_url=self.url_for(), api_key=self.DUMMY_API_KEY, max_retries=0, **{"timeout": 600, **kwargs})

    def get_async_client_anthropic(self, **kwargs):
        import anthropic
        return anthropic.AsyncAnthropic(base_url=self.url_for(), api_key=self.DUMMY_API_KEY, max_retries=0,
                                        **{"timeout": 600, **kwargs})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get_tokenizer(tokenizer_name="", *_, **__):
    """That of the model that answers in this one's place."""
    import transformers
    return transformers.AutoTokenizer.from_pretrained(os.environ["IBID_SUITE_TOKENIZER"])


class ModelConfig:
    """What tests need of a model's file: the size of its vocabulary."""
    def __init__(self, *_, **__):
        pass

    def get_vocab_size(self):
        return len(get_tokenizer())


class Empty(types.ModuleType):
    """A module, class, decorator or value that no test reads."""
    def __init__(self, name="", *_, **__):
        super().__init__(str(name))
        self.__path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Empty(name)

    def __call__(self, *args, **_):
        return args[0] if len(args) == 1 and callable(args[0]) and not isinstance(args[0], Empty) else Empty()

    def __bool__(self):
        return False

    def __mro_entries__(self, _):
        return ()

    def __iter__(self):
        return iter(())

    def __fspath__(self):
        return "/nothing"

    def __getitem__(self, _):
        return Empty()

    def __or__(self, _):
        return object

    __ror__ = __or__


class Missing(types.ModuleType):
    """A module whose functions compare with vLLM's or transformers' own runs: a test that calls one fails."""
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        class Absent:
            def __init__(self, *_, **__):
                raise NotImplementedError(name)

        return Absent


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of vLLM from its sources, without what their packages do at import; Empty where that fails."""
    ROOTS = ("vllm", "torch", "cv2", "soundfile", "mteb")

    def find_spec(self, name, path=None, target=None):
        root = name.split(".")[0]
        ours = root in self.ROOTS or name in ("tests.utils", "tests.conftest") or name.startswith("tests.models")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec):
        if spec.name.startswith("tests.") and spec.name != "tests.utils":
            return Missing(spec.name)
        if spec.name == "vllm.transformers_utils.repo_utils":  # it would download adapters
            return Empty(spec.name)
        module = self.made_here(spec.name)
        if module is None:
            module = self.from_sources(spec.name)
        return module if module is not None else Empty(spec.name)

    def exec_module(self, module):
        pass

    def made_here(self, name):
        if name not in ("tests.utils", "vllm.tokenizers", "vllm.version", "vllm.envs", "vllm.utils.network_utils", "vllm.config"):
            return None
        module = Empty(name)
        module.RemoteOpenAIServer, module.ROCM_EXTRA_ARGS, module.ROCM_ENV_OVERRIDES = RemoteOpenAIServer, [], {}
        module.VLLM_PATH = SOURCES
        module.get_tokenizer = get_tokenizer
        module.get_open_port = free_port
        module.ModelConfig = ModelConfig
        module.__version__ = subprocess.run([os.environ.get("IBID", "ibid"), "--version"], capture_output=True, text=True).stdout.split()[1]
        return module

    def from_sources(self, name):
        file = SOURCES / (name.replace(".", "/") + ".py")
        if not name.startswith("vllm.") or not file.exists():
            return None
        module = types.ModuleType(name)
        module.__file__, module.__package__ = str(file), name.rpartition(".")[0]
        sys.modules[name] = module
        try:
            exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
            return module
        except Exception as e:
            print(f"vllm_suite: {name} is empty: {type(e).__name__}: {str(e)[:160]}", file=sys.stderr)
            return None
        finally:
            sys.modules.pop(name, None)


def map_tokenizers():
    """Model files alone: a tokenizer requested by a name on the hub is the local one."""
    import transformers
    read = transformers.AutoTokenizer.from_pretrained

    def from_pretrained(name, *args, **kwargs):
        return read(name if os.path.isdir(name) else os.environ["IBID_SUITE_TOKENIZER"])

    transformers.AutoTokenizer.from_pretrained = from_pretrained


map_tokenizers()
sys.meta_path.insert(0, Finder())


@pytest.fixture
def local_asset_server():
    """Of pictures, which tests of texts take and do not look at."""


def starts_a_server(item):
    """Whether a test, or a fixture of it, starts a server; all others look into vLLM's own insides."""
    functions = [item.function, *(d.func for defs in item._fixtureinfo.name2fixturedefs.values() for d in defs)]
    for function in functions:
        try:
            source = inspect.getsource(function)
            if "RemoteOpenAIServer(" in source or "getfixturevalue(" in source:  # the second chooses between servers
                return True
        except (OSError, TypeError):
            pass
    return False


def pytest_collection_modifyitems(config, items):
    kept = [item for item in items if starts_a_server(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
