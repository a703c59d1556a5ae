"""`--keep-packed` and `ibid verify` on the default model: the same words, a file that the next start maps, and what happens when
it breaks. keep_packed_test.py BUILD_DIR."""
import os
import pathlib
import subprocess
import tempfile

from harness import IBID, Skip, default_model, main


class Cache:
    """A cache folder of its own; the model stays where it is."""

    def __init__(self, folder):
        path = (default_model() or ["default"])[0]
        self.model = subprocess.run([IBID, "pull", path], capture_output=True, text=True, check=True).stdout.strip()
        self.environment = {**os.environ, "XDG_CACHE_HOME": folder}
        self.packed = pathlib.Path(folder, "ibid", "packed")

    def ibid(self, command, *arguments):
        return subprocess.run([IBID, command, self.model, *arguments], capture_output=True, text=True, env=self.environment,
                              timeout=120)

    def words(self, *arguments):
        done = self.ibid("run", "-p", "Name three rivers.", "--temp", "0", "-n", "24", *arguments)
        assert done.returncode == 0, done
        return done.stdout, done.stderr

    def file(self):
        (path,) = self.packed.glob("*.packed")
        return path


def test_a_broken_file_is_made_again_and_no_word_changes():
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder)
        plain, _ = cache.words()
        assert not cache.packed.exists()
        for _ in range(2):
            words, told = cache.words("--keep-packed")
            assert words == plain and "packed" not in told, told
        made = cache.file().stat()
        assert made.st_mode & 0o777 == 0o600 and abs(made.st_size / pathlib.Path(cache.model).stat().st_size - 1) < 0.05
        with open(cache.file(), "r+b") as file:
            file.seek(made.st_size // 2)
            byte = file.read(1)
            file.seek(made.st_size // 2)
            file.write(bytes([byte[0] ^ 1]))
        words, told = cache.words("--keep-packed")
        assert words == plain and "they are damaged. They are made again" in told, told
        words, told = cache.words("--keep-packed")
        assert words == plain and "packed" not in told, told


def test_verify_reads_all_and_removes_what_is_broken():
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder)
        assert cache.ibid("verify").returncode == 0
        cache.words("--keep-packed")
        sound = cache.ibid("verify")
        assert sound.returncode == 0 and f"{cache.file()}  " in sound.stdout and "sound" in sound.stdout, sound
        path = cache.file()
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 1)
        broken = cache.ibid("verify")
        assert broken.returncode == 1 and "not as long as it was. It was removed" in broken.stderr, broken
        assert not path.exists() and cache.ibid("verify").returncode == 0


def test_a_model_whose_bytes_changed_is_reported():
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder)
        copy = pathlib.Path(folder, "copy.gguf")
        copy.write_bytes(pathlib.Path(cache.model).read_bytes())
        os.utime(copy, (1_600_000_000, 1_600_000_000))
        cache.model = str(copy)
        assert cache.ibid("verify").returncode == 0
        with open(copy, "r+b") as file:
            file.seek(50_000_000)
            file.write(b"turned")
        os.utime(copy, (1_600_000_000, 1_600_000_000))
        told = cache.ibid("verify")
        assert told.returncode == 1 and "is failing" in told.stderr, told


def test_every_command_reports_a_damaged_fetched_model():
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder)
        if pathlib.Path(cache.model).name != "SmolLM2-135M-Instruct.Q4_1.gguf":
            raise Skip("the default model is another")
        copy = pathlib.Path(folder, "ibid", "models", pathlib.Path(cache.model).name)
        copy.parent.mkdir(parents=True)
        copy.write_bytes(pathlib.Path(cache.model).read_bytes())
        cache.model = "default"
        sound = cache.ibid("verify")
        assert sound.returncode == 0 and "1 file as fetched" in sound.stdout, sound
        with open(copy, "r+b") as file:
            file.seek(90_000_000)
            byte = file.read(1)
            file.seek(90_000_000)
            file.write(bytes([byte[0] ^ 1]))
        for command in (("verify",), ("run", "-p", "Hi", "-n", "1")):
            told = cache.ibid(*command)
            assert told.returncode == 1 and "is damaged" in told.stderr and "`ibid pull default`" in told.stderr, told
        # The file to repair it from is not available: that is reported, and the damaged one is not taken for whole.
        tools = pathlib.Path(folder, "bin")
        tools.mkdir()
        (tools / "python3").write_text("#!/bin/sh\necho 'no network'; exit 1\n")
        (tools / "python3").chmod(0o700)
        cache.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
        told = cache.ibid("pull")
        assert told.returncode == 1 and "is damaged" in told.stderr and "no network" in told.stderr, told


if __name__ == "__main__":
    main(test_a_broken_file_is_made_again_and_no_word_changes, test_verify_reads_all_and_removes_what_is_broken,
         test_a_model_whose_bytes_changed_is_reported,
         test_every_command_reports_a_damaged_fetched_model)
