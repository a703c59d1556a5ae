"""What numbers of docs/measurements/speculation.md were measured on is what lies here, and no head was trained on it; its pictures are
what their tool draws. held_out_test.py SOURCE_DIR."""
import hashlib
import pathlib
import re
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
PROMPTS = SOURCE / "bench/prompts/speculation.txt"
DIGESTS = (PROMPTS, SOURCE / "src/host/heads/smollm2-135m-instruct.gguf")
IN_A_ROW = 6  # words that no opening or task of the generator shares with a prompt; whole questions are held to eight tokens

sys.path.insert(0, str(SOURCE / "tools"))
sys.dont_write_bytecode = True
import speculation_pictures  # noqa: E402
import write_head_text as generator  # noqa: E402


def digest_is_that_beside_it(file):
    told = file.with_name(file.name + ".sha256").read_text().split()
    return told == [hashlib.sha256(file.read_bytes()).hexdigest(), file.name]


def test_digests():
    for file in DIGESTS:
        assert digest_is_that_beside_it(file), f"{file} is not what its digest says: numbers of docs/measurements/speculation.md are of another one"
    with tempfile.TemporaryDirectory() as folder:  # a byte more shows
        copy = pathlib.Path(folder) / PROMPTS.name
        copy.write_bytes(PROMPTS.read_bytes() + b"\n")
        copy.with_name(copy.name + ".sha256").write_text(PROMPTS.with_name(PROMPTS.name + ".sha256").read_text())
        assert not digest_is_that_beside_it(copy)
    kinds = re.findall(r"^== (\w+)", PROMPTS.read_text(), re.M)
    assert {kind: kinds.count(kind) for kind in kinds} == {"passage": 8, "code": 8, "edit": 8, "summary": 8, "json": 8, "chat": 8}, kinds


def runs(text, n):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i:i + n]) for i in range(len(words) - n + 1)}


def test_no_template_of_the_training_text_is_in_a_prompt():
    prompts = runs(PROMPTS.read_text(), IN_A_ROW)
    templates = [text for group in (generator.OPENINGS, generator.TASKS) for texts in group.values() for text in texts]
    assert len(templates) > 60
    for text in templates:
        assert not runs(text, IN_A_ROW) & prompts, f"{text!r} shares {IN_A_ROW} words in a row with a prompt of the bench"


class Words:
    """A client whose model repeats its input; a token is a word."""

    def __init__(self, said):
        self.said, self.ids = said, {}

    def tokens_of(self, text):
        return [self.ids.setdefault(word, len(self.ids)) for word in text.split()]

    def chat(self, text):
        return self.tokens_of("user: " + text + " assistant:")

    def complete(self, ids, max_tokens, temperature, seed):
        return [1, 2, 3], self.said, True


def test_what_shares_eight_tokens_with_a_prompt_is_left_out():
    chats = re.findall(r"^== chat\n(.*?)(?=^== |\Z)", PROMPTS.read_text(), re.M | re.S)
    longest = max((chat.split() for chat in chats), key=len)
    assert len(longest) >= generator.SHARED, longest
    own = "something that stands in no prompt of any bench at all, and is long enough to be asked."
    questions = [n for n in range(40) if generator.Writer(Words(own), 1).line(n)]
    assert questions, "nothing is kept"
    for n in questions[:8]:
        kept = own + " " + " ".join(longest[:generator.SHARED - 1])
        assert generator.Writer(Words(kept), 1).line(n), "seven words are no eight"
        left_out = own + " " + " ".join(longest[:generator.SHARED])
        assert generator.Writer(Words(left_out), 1).line(n) is None, "a question with eight words of a prompt is kept"
        # The same number is the same line for any caller.
        assert generator.Writer(Words(own), 1).line(n) == generator.Writer(Words(own), 1).line(n)


def test_pictures_are_what_their_tool_draws():
    with tempfile.TemporaryDirectory() as folder:
        speculation_pictures.draw(folder)
        for name in speculation_pictures.PICTURES:
            drawn = pathlib.Path(folder, name).read_text()
            assert drawn == (SOURCE / "docs/pictures" / name).read_text(), f"docs/pictures/{name}: run tools/speculation_pictures.py"
            assert "prefers-color-scheme: dark" in drawn


if __name__ == "__main__":
    for test in (test_pictures_are_what_their_tool_draws, test_digests, test_no_template_of_the_training_text_is_in_a_prompt, test_what_shares_eight_tokens_with_a_prompt_is_left_out):
        test()
