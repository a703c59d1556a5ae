"""The grammars that come with llama.cpp, unchanged: gbnf_files_test.py BUILD_DIR [WALKS].

They lie in the source package of llama-cpp-python. Each must compile, and answers drawn at random under its masks of the default
model's tokens must come to an end and be what the grammar is for, as code that knows nothing of grammars sees it."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

from harness import BUILD, Skip, default_model, main

WALKS = int(sys.argv[2]) if len(sys.argv) > 2 else 50
PACKAGE = "llama-cpp-python==0.3.36"
FILES = ("arithmetic", "c", "chess", "english", "japanese", "json", "json_arr", "list")


def gbnf_files():
    """Their texts by name, fetched once under BUILD_DIR."""
    folder = BUILD / "gbnf"
    if not folder.exists():
        fetched = BUILD / "packages/llama-cpp-python"
        fetched.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PACKAGE,
                            "-d", fetched], check=True, timeout=600, capture_output=True)
        except (subprocess.SubprocessError, OSError) as error:
            raise Skip(f"the source package of llama-cpp-python cannot be had ({type(error).__name__})")
        (package,) = fetched.glob("llama_cpp_python-*.tar.gz")
        texts = {}
        with tarfile.open(package) as packed:
            for member in packed:
                if "/vendor/llama.cpp/grammars/" in member.name and member.name.endswith(".gbnf"):
                    texts[pathlib.Path(member.name).name] = packed.extractfile(member).read()
        assert texts, "the package has no grammars"
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).write_bytes(text)
        package.unlink()  # 77 MB
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.gbnf"))}


def vocabulary():
    for model in default_model():
        return model
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ibid/models"
    return next(cache.glob("**/*.gguf"))


def is_arithmetic(text):
    text = re.sub(r"\s", "", re.sub(r"[a-z][a-z0-9_]*|[0-9]+", "T", text))
    while (shorter := re.sub(r"\(T([-+*/]T)*\)", "T", text)) != text:
        text = shorter
    return re.fullmatch(r"(T([-+*/]T)*=T)+", text)


def is_c(text):
    """Declarations with a body each, their brackets closed; what is in comments does not count."""
    text = re.sub(r"//[^\n]*\n|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"[^(){}]", "", text)
    while (shorter := re.sub(r"\(\)|\{\}", "", text)) != text:
        text = shorter
    return text == ""


def is_json(kind):
    def check(text):
        try:
            return isinstance(json.loads(text), kind)
        except ValueError:
            return False
    return check


MOVE = r"(([a-h]x)?[a-h][1-8](=[NBKQR])?|[NBKQR][a-h]?[1-8]?x?[a-h][1-8]|O-O(-O)?)[+#]?"
CHECKS = {
    "arithmetic": is_arithmetic,
    "c": is_c,
    "chess": re.compile(rf"1\. {MOVE} {MOVE}\n([1-9][0-9]?\. {MOVE} {MOVE}\n)+").fullmatch,
    "english": re.compile(r"[!-~]+([ \t\n][!-~]+)*").fullmatch,
    "japanese": re.compile("[\u3001-\u303e\u3041-\u309f\u30a1-\u30ff\u4e00-\u9fff \t\n]+").fullmatch,
    "json": is_json(dict),
    "json_arr": is_json(list),
    "list": re.compile("(- [^\r\n\x0b\x0c\x85\u2028\u2029]+\n)+").fullmatch,
}


def test_each_of_llama_cpps_grammars_compiles_and_its_answers_end():
    files = gbnf_files()
    assert set(files) >= set(FILES), sorted(files)
    lines = "".join(json.dumps({"gbnf": text, "walks": WALKS, "seed": 13}) + "\n" for text in files.values())
    done = subprocess.run([BUILD / "schema_walks", vocabulary()], input=lines, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    n_tokens = n_answers = 0
    for (name, _), line in zip(files.items(), done.stdout.splitlines(), strict=True):
        said = json.loads(line)
        assert "refused" not in said, (name, said)
        assert said["cut"] == 0 and len(said["answers"]) == WALKS, (name, said["cut"])
        assert len(set(said["answers"])) > WALKS // 2, name
        for text in said["answers"]:
            assert CHECKS.get(name, bool)(text), (name, text)
        n_answers += len(said["answers"])
        n_tokens += said["tokens"]
    return f"{n_answers} answers of {len(files)} grammars, {n_tokens} tokens"


if __name__ == "__main__":
    main(test_each_of_llama_cpps_grammars_compiles_and_its_answers_end)
