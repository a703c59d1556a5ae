"""The types of the Python package, as mypy --strict sees them. library_types_test.py BUILD_DIR."""
import subprocess

from harness import ROOT, main, venv


def test_the_package_is_strictly_typed():
    programs = venv("venv-types", "mypy==2.4.1", "numpy")
    done = subprocess.run([programs / "mypy", "--config-file", ROOT / "python/pyproject.toml", "--cache-dir=/dev/null", ROOT / "python/ibid"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


if __name__ == "__main__":
    main(test_the_package_is_strictly_typed)
