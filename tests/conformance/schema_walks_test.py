"""Answers at random under the masks of real schemas, each checked by two validators: schema_walks_test.py BUILD_DIR [WALKS].

The schemas are those of SchemaStore that bench/grammar_engines.py fetches, the tokens those of the default model, the
validators `jsonschema` (Python) and `jsonschema-rs` (Rust), which have no code in common. An answer that either of them refuses
fails the test, and so does a changed answer that both refuse and the grammar accepts.

The validators are not asked about what the grammar could not hold and said so: the keywords that it named are taken out of the
schema, wherever a subschema says the same; where it named one under a negation, all negations are. Expressions are spelled so
that both read them as ECMA-262 does, which neither does by itself: `.` is no carriage return and no U+2028, \\s has U+FEFF, \\d
and \\w are ASCII, and in Python `$` stands before a last line feed too."""
import collections
import contextlib
import copy
import decimal
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import urllib.parse

import harness

WALKS = int(sys.argv[2]) if len(sys.argv) > 2 else 8
MUTANTS = 8  # of each of two answers
PACKAGES = ("jsonschema[format-nongpl]==4.26.0", "jsonschema-rs==0.60.3")
NAMED = re.compile(r'"(?P<key>[^"]*)" at (?P<place>#.*?) cannot be held: (?P<why>.*)', re.S)
SAYS_NOTHING = {"title", "description", "default", "examples", "$comment"}
FORMATS = ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference")
MAPS = {"properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas"}
NO_SCHEMAS = {"enum", "const", "default", "examples"}
STAYS = {"$schema", "$id", "id", "definitions", "$defs"}


def at(schema, place):
    for step in place.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        schema = schema[int(step)] if isinstance(schema, list) else schema[step]
    return schema


def parts(schema):
    """All schemas within that are objects, it too."""
    todo = [schema]
    while todo:
        schema = todo.pop()
        if isinstance(schema, list):
            todo += schema
        if not isinstance(schema, dict):
            continue
        yield schema
        for key, value in schema.items():
            if key in MAPS and isinstance(value, dict):
                todo += value.values()
            elif key not in NO_SCHEMAS:
                todo.append(value)


def meaning(schema):
    return json.dumps({k: v for k, v in schema.items() if k not in SAYS_NOTHING}, sort_keys=True, default=str)


def take_out(schema, key, is_old):
    if key == "oneOf" and key in schema:
        schema.setdefault("allOf", []).append({"anyOf": schema.pop("oneOf")})
    elif key == "patternProperties" and key in schema:  # whose names are still not additional ones
        schema[key] = dict.fromkeys(schema[key], True if not is_old else {})
    elif key == "$ref" and is_old:  # what stands beside it says nothing
        for other in [k for k in schema if k not in STAYS]:
            del schema[other]
    else:
        for other in (key, *(("then", "else") if key == "if" else ())):
            schema.pop(other, None)


def draft(schema):
    """As the grammar reads it; "" is 2020-12."""
    found = re.search(r"draft(-0[34567]|/2019-09)", str(schema.get("$schema", "")))
    return found[1] if found else ""


def without(schema, sentences):
    """The schema without what could not be held."""
    is_old, out, negations = draft(schema).startswith("-0"), [], False
    reported = [m for m in map(NAMED.fullmatch, sentences) if m]
    twins, referred = collections.defaultdict(list), {}
    for part in parts(schema):
        twins[meaning(part)].append(part)
        if str(part.get("$ref")).startswith("#/"):
            with contextlib.suppress(KeyError, IndexError, ValueError, TypeError):
                referred[part["$ref"]] = at(schema, urllib.parse.unquote(part["$ref"]))
    for found in reported:
        if found["why"].startswith("under a negation"):
            negations = True
        else:
            out += [(twin, found["key"]) for twin in twins[meaning(at(schema, found["place"]))]]
    for part, key in out:
        take_out(part, key, is_old)
    for part in list(parts(schema)) if negations else ():
        for key in ("not", "if", "oneOf"):
            if key in part:
                take_out(part, key, is_old)
    # What references lead to may have gone with the rest, or may stand where a validator would not look for it.
    kept = schema.setdefault("definitions", {}) if isinstance(schema.get("definitions", {}), dict) and reported else {}
    for part in list(parts(schema)) if reported else ():
        reference = part.get("$ref")
        if isinstance(reference, str) and isinstance(referred.get(reference), dict) and is_lost(schema, reference):
            name = f"kept {len(kept)}"
            kept[name] = referred[reference]
            for other in parts(schema):
                if other.get("$ref") == reference:
                    other["$ref"] = "#/definitions/" + urllib.parse.quote(name)
    return schema


def is_lost(schema, reference):
    try:
        at(schema, urllib.parse.unquote(reference))
    except (KeyError, IndexError, ValueError, TypeError):
        return True
    return False


BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": BLANKS, "D": "\0-/:-\U0010ffff", "W": "\0-/:-@\\[-\\^`{-\U0010ffff",
           "S": "\0-\x08\x0e-\x1f!-\x9f\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"}
STRING, BLANK_RUN = re.compile(r'"(?:[^"\\]|\\.)*"'), re.compile(r"[ \t\n\r]{23,}")
QUANTIFIER = re.compile(r"\{\d+(,\d*)?\}")


def plain(regex, end):
    """An expression of ECMA-262 in what all dialects read alike; `end` is what they do not: the end of the text."""
    made, i, is_class = "", 0, False
    while i < len(regex):
        c = regex[i]
        i += 1
        if c == "\\" and i < len(regex):
            c = regex[i]
            i += 1
            if c in CLASSES:
                made += CLASSES[c] if is_class else f"[{CLASSES[c]}]"
                if is_class and regex[i:i + 1] == "-" and regex[i + 1:i + 2] != "]":
                    made += "\\-"
                    i += 1
            elif c.isalnum():
                made += "\\" + c
            else:
                made += "\\" + c if c in "^$\\.*+?()[]{}|/" or (is_class and c == "-") else c
        elif is_class:
            is_class = c != "]"
            made += "\\[" if c == "[" else c
        elif c == "[":
            is_class = True
            made += c
            if regex[i:i + 1] == "^":
                made += "^"
                i += 1
        elif c == ".":
            made += "[^\n\r\u2028\u2029]"
        elif c == "$":
            made += end
        elif c == "{" and (found := QUANTIFIER.match(regex, i - 1)):
            made += found[0]
            i = found.end()
        else:
            made += "\\" + c if c in "{}]" else c
    return made


def with_plain_expressions(schema, end):
    schema = copy.deepcopy(schema)
    for part in parts(schema):
        if isinstance(part.get("pattern"), str):
            part["pattern"] = plain(part["pattern"], end)
        if isinstance(part.get("patternProperties"), dict):
            part["patternProperties"] = {plain(k, end): v for k, v in part["patternProperties"].items()}
        if isinstance(part.get("$ref"), str):
            part["$ref"] = urllib.parse.quote(part["$ref"], safe="#/:?&=%@+,;!$'()*~")
    return schema


def validators(schema):
    """By name, functions that return why a value is not valid; None: it is."""
    import jsonschema
    import jsonschema_rs
    import referencing
    import referencing.jsonschema

    nothing = referencing.jsonschema.DRAFT202012.create_resource(True)
    name = {"-03": "Draft3", "-04": "Draft4", "-06": "Draft6", "-07": "Draft7", "/2019-09": "Draft201909", "": "Draft202012"}[draft(schema)] + "Validator"
    kind = getattr(jsonschema, name)
    held = set(FORMATS) & set(kind.FORMAT_CHECKER.checkers)
    python = kind(with_plain_expressions(schema, r"\Z"), registry=referencing.Registry(retrieve=lambda uri: nothing), format_checker=jsonschema.FormatChecker(held))
    others = {f: lambda value: True for f in {str(p["format"]) for p in parts(schema) if "format" in p} - set(FORMATS)}
    rust = getattr(jsonschema_rs, name)(with_plain_expressions(schema, "$"), retriever=lambda uri: True, validate_formats=True,
                                        formats=others)
    return {"jsonschema": lambda value: next((reported(e.validator, e.message, e.absolute_schema_path) for e in python.iter_errors(value)), None),
            "jsonschema-rs": lambda value: next((reported(type(e.kind).__name__, e.message, e.schema_path) for e in rust.iter_errors(value)), None)}


def reported(key, message, path):
    return f"{key} at {'/'.join(map(str, path))}: {message[-300:]}"


def data():
    sys.path.append(str(harness.ROOT / "bench"))
    import grammar_engines
    try:
        grammar_engines.fetch()
    except subprocess.SubprocessError as error:
        raise harness.Skip(f"the schemas cannot be fetched: {error}") from error
    return sorted((grammar_engines.DATA / "schemas").glob("*.json"))


def vocabulary():
    if model := harness.default_model():
        return model[0]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ibid/models"
    return next(cache.glob("**/*.gguf"))


class Tool:
    """A program that answers each line with a line."""

    def __init__(self, *command):
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8")

    def ask(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def mutants(value, rng):
    """The value with one change each: something is removed, repeated, or replaced."""
    for _ in range(MUTANTS):
        made = copy.deepcopy(value)
        holders = [part for part in inside(made) if part]
        if not holders:
            return
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        change = rng.randrange(4)
        if change == 0:
            del holder[key]
        elif change == 1 and isinstance(holder, list):
            holder.append(holder[key])
        elif change == 1:
            holder[key + "x"] = holder.pop(key)
        elif change == 2 and isinstance(holder[key], str):
            holder[key] = rng.choice((holder[key] + "x", holder[key][1:], ""))
        else:
            holder[key] = rng.choice((None, True, -1, 0.5, 10**12, "", "x", [], {}))
        yield made


def is_valid(check, value):
    try:
        return check(value) is None
    except re.error:
        return True


def inside(value):
    """Lists and objects within."""
    if isinstance(value, (dict, list)):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from inside(part)


def test_answers_are_valid_and_what_is_not_is_refused():
    files, total, wrong = data(), collections.Counter(), []
    walker, judge, rng = Tool(harness.BUILD / "schema_walks", vocabulary()), Tool(harness.BUILD / "schema_tool"), random.Random(7)
    for seed, file in enumerate(files):
        text = file.read_text(encoding="utf-8")
        made = walker.ask(schema=text, walks=WALKS, seed=seed)
        if "refused" in made:
            total["schemas refused"] += 1
            continue
        schema = without(json.loads(text.removeprefix("\ufeff"), parse_float=decimal.Decimal), made["ignored"])
        checks = validators(schema)
        total.update({"schemas": 1, "answers": len(made["answers"]), "cut": made["cut"], "tokens": made["tokens"]})
        values = []
        for answer in made["answers"]:
            if BLANK_RUN.search(STRING.sub('""', answer)):
                wrong.append((file.name, "a run of blanks without an end", answer))
            try:
                values.append(json.loads(answer, parse_float=decimal.Decimal))
            except ValueError as error:
                wrong.append((file.name, str(error), answer))
                continue
            for name, check in checks.items():
                try:
                    why = check(values[-1])
                except re.error:  # \p{...}
                    total[f"answers that {name} cannot read"] += 1
                    continue
                if why:
                    wrong.append((file.name, name, why, answer))
        others = [json.loads(json.dumps(m, default=float), parse_float=decimal.Decimal) for v in values[:2] for m in mutants(v, rng)]
        said = [[is_valid(check, value) for check in checks.values()] for value in others]
        spelled = [json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float) for value in others]
        accepted = judge.ask(schema=text, strict=False, formats=True, texts=[[t] for t in spelled])["accepted"]
        for value, verdicts, is_accepted in zip(spelled, said, accepted, strict=True):
            total["mutants" if len(set(verdicts)) == 1 else "mutants of which the validators differ"] += 1
            total["invalid mutants"] += not any(verdicts)
            total["valid mutants accepted"] += all(verdicts) and is_accepted
            if is_accepted and not any(verdicts):
                wrong.append((file.name, "an invalid value is accepted", value))
    for line in wrong[:10]:
        print(*(str(part)[:1000] for part in line), sep="\n    ")
    assert not wrong, f"{len(wrong)} of {dict(total)}"
    assert total["schemas"] >= 470 and total["cut"] == 0, total
    assert total["answers"] == total["schemas"] * WALKS and total["invalid mutants"] > total["mutants"] / 4, total
    return ", ".join(f"{n} {name}" for name, n in total.items())


if __name__ == "__main__":
    try:
        import jsonschema_rs  # noqa: F401
    except ImportError:
        try:
            python = str(harness.venv("venv-schemas", *PACKAGES) / "python")
        except harness.Skip as reason:
            print("skipped:", reason)
            sys.exit(77)
        os.execv(python, [python, *sys.argv])
    harness.main(test_answers_are_valid_and_what_is_not_is_refused)
