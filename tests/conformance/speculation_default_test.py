"""What speculation_test.py holds a tiny model to, of the default one with ibid's own draft head. speculation_default_test.py BUILD_DIR."""
import contextlib

from harness import IBID, Server, default_model, main
from speculation_test import compare


def test_the_default_model_gives_the_same_answer_with_its_head():
    model = default_model()
    with contextlib.ExitStack() as stack:
        plain, eagle = (stack.enter_context(Server([IBID, "serve", *model, "--port", 0, "--ctx", 1024, "--max-sequences", 4, "--spec", spec]))
                        for spec in ("off", "eagle"))
        n = compare(plain, eagle, "List the months of the year with the number of their days.", 50)
    return f"{n} drafts were right"


if __name__ == "__main__":
    main(test_the_default_model_gives_the_same_answer_with_its_head)
