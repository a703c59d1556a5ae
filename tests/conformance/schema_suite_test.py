"""The required part of the JSON-Schema-Test-Suite, 2020-12, token by token: schema_suite_test.py BUILD_DIR [--write].

The suite comes with the source package of `jsonschema` (pip download). Each value is spelled as an answer would be: members
in each order (up to 120), plain numbers, shortest escapes; it is accepted where one spelling is. Nothing that is invalid may be
accepted, whatever else changes; and schema_verdicts.json, which is checked in, says which groups are right, of which
none may get worse. --write writes it again."""
import collections
import decimal
import itertools
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).parent
VERDICTS = HERE / "schema_verdicts.json"
PACKAGE = "jsonschema==4.26.0"
LEAST_RIGHT = 900


def number(value):
    text = format(decimal.Decimal(str(value)), "f") if isinstance(value, float) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def spellings(value):
    """Texts of a value, its members in all orders, as far as these are few."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return [json.dumps(value, ensure_ascii=False)]
    if isinstance(value, (int, float)):
        return [number(value)]
    if isinstance(value, list):
        return ["[" + ",".join(parts) + "]" for parts in itertools.islice(itertools.product(*map(spellings, value)), 120)]
    found = []
    for order in itertools.islice(itertools.permutations(value.items()), 120):
        for parts in itertools.islice(itertools.product(*(spellings(part) for _, part in order)), 120):
            found.append("{" + ",".join(json.dumps(k, ensure_ascii=False) + ":" + p for (k, _), p in zip(order, parts)) + "}")
    return found[:120]


def suite(folder):
    try:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                        PACKAGE, "-d", folder], check=True, timeout=120, capture_output=True)
    except (subprocess.SubprocessError, OSError) as error:
        print("the source package of jsonschema cannot be had:", error)
        sys.exit(77)
    with tarfile.open(next(pathlib.Path(folder).glob("jsonschema-*.tar.gz"))) as packed:
        packed.extractall(folder)
    return next(pathlib.Path(folder).glob("jsonschema-*/json/tests/draft2020-12"))


def verdicts(tool, folder):
    """Of each file and group: right, refused, lost (valid and not accepted), unsound."""
    cases = [(path.stem, group) for path in sorted(folder.glob("*.json")) for group in json.loads(path.read_text(encoding="utf-8"))]
    lines = "".join(json.dumps({"schema": json.dumps(group["schema"], ensure_ascii=False), "strict": True, "formats": False,
                                "texts": [spellings(test["data"]) for test in group["tests"]]}) + "\n" for _, group in cases)
    done = subprocess.run([tool], input=lines, capture_output=True, text=True, timeout=600, check=True)
    found, sentences = {}, collections.Counter()
    for (name, group), line in zip(cases, done.stdout.splitlines(), strict=True):
        answer, counts = json.loads(line), collections.Counter()
        for i, test in enumerate(group["tests"]):
            if "refused" in answer:
                counts["refused"] += 1
                sentences[answer["refused"]] += 1
            elif answer["accepted"][i] == test["valid"]:
                counts["right"] += 1
            else:
                counts["lost" if test["valid"] else "unsound"] += 1
        found[f'{name}: {group["description"]}'] = dict(counts)
    return found, sentences


def main():
    build = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        found, sentences = verdicts(build / "schema_tool", suite(folder))
    total = collections.Counter()
    for counts in found.values():
        total.update(counts)
    print(dict(total), "of", sum(total.values()))
    if "--write" in sys.argv:
        VERDICTS.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    if "--why" in sys.argv:
        for sentence, n in sentences.most_common(60):
            print(n, sentence)
        for name, counts in found.items():
            if counts.get("lost") or counts.get("unsound"):
                print(name, counts)
    before = json.loads(VERDICTS.read_text(encoding="utf-8"))
    worse = [name for name, counts in before.items() if found.get(name, {}).get("right", 0) < counts.get("right", 0)]
    assert total["unsound"] == 0, [name for name, counts in found.items() if counts.get("unsound")]
    assert total["right"] >= LEAST_RIGHT, total
    assert not worse, worse


if __name__ == "__main__":
    main()
