"""Drives the page at / in headless Chromium, with the real engine and the default model.
page_tests.py BUILD_DIR [PART OF A TEST'S NAME]. Pictures go to BUILD_DIR/page_pictures. Exit code 77: there is no
browser or no model."""
import functools
import sys

import chromium
from servers import Server, harness

import chat_checks
import engine_checks
import error_checks
import look_checks
import picture_checks
import reach_checks
import served_checks
import text_checks
import work_checks

MODULES = (chat_checks, work_checks, picture_checks, text_checks, error_checks, engine_checks, look_checks, served_checks,
           reach_checks)


class World:
    """One browser and one server for all tests, and more servers for those that break theirs."""

    def __init__(self, program):
        self.root, self.pictures = harness.ROOT, harness.BUILD / "page_pictures"
        self.pictures.mkdir(exist_ok=True)
        self.servers = []
        self.browser = chromium.Chromium(program)
        try:
            self.server = self.serve("--max-sequences", "16", "--ctx", "2048")
        except BaseException:
            self.browser.close()
            raise

    def serve(self, *options, **more):
        self.servers.append(Server(*options, **more))
        return self.servers[-1]

    def server_model(self):
        """The file of the model that the servers have."""
        return (harness.default_model() or [harness.default_model_file()])[0]

    def page(self, server=None, **look):
        return self.browser.page((server or self.server).url + "/", **look)

    def check_look(self, page, name, dark, phone):
        page.picture(self.pictures / f"{name}_{'dark' if dark else 'light'}_{390 if phone else 1280}.png")
        look_checks.check(page, name, dark, phone)

    def end(self):
        self.browser.close()
        for server in self.servers:
            server.kill()


def main():
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    program = chromium.find()
    if not program:
        print("skipped page: there is no Chromium; scripts/common.sh names its package among slow_packages")
        sys.exit(77)
    try:
        harness.default_model()
    except harness.Skip as reason:
        print(f"skipped page: {reason}")
        sys.exit(77)
    world = World(program)
    try:
        harness.main(*[functools.wraps(test)(functools.partial(test, world))
                       for module in MODULES for test in module.TESTS if wanted in test.__name__])
    finally:
        world.end()
        print(f"{world.browser.version}; pictures in {world.pictures}")


main()
