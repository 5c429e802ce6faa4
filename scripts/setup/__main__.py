"""python scripts/setup edgespec|test|check ARGS…: make ready what is missing, then become the program."""

from __future__ import annotations

import os
import sys

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[0] = SCRIPTS  # was this folder: its files are the package `setup`, not modules of their own

from setup import stamp  # noqa: E402

CHECKS = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",))


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in ("edgespec", "test", "check"):
        print("usage: python scripts/setup edgespec|test|check ARGS…", file=sys.stderr)
        return 2
    command, *rest = arguments
    root = os.path.dirname(SCRIPTS)
    venv = stamp.venv_folder(root, os.environ)
    level = "run" if command == "edgespec" else "dev"
    if not stamp.is_complete(root, venv, level, os.environ):
        code = set_up(root, level)
        if code:
            return code
    python = stamp.python_in(venv)
    # -P: what lies in the user's folder must not be imported in place of a package
    if command == "edgespec":
        return become([python, "-P", "-m", "edgespec", *rest])
    os.chdir(root)
    if command == "test":
        return become([python, "-P", "-m", "pytest", *rest])
    return check(python)


def set_up(root: str, level: str) -> int:
    """Do what is missing, and say it; gives the exit status."""
    import signal

    from setup import BrokenOff, SetupError, commands, places, prepare, report

    def stopped(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stopped)
    try:
        prepare.prepare(places.find(root, os.environ), level, os.environ, report.Report(sys.stderr))
    except SetupError as error:
        if error.log is not None:
            print(f"{commands.tail(error.log)}\n", file=sys.stderr)
        where = f" (all of it: {error.log})" if error.log is not None else ""
        print(f"edgespec: {error}{where}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"edgespec: set-up failed: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenOff):
        print("edgespec: set-up was broken off; the next start takes it up again", file=sys.stderr)
        return 130
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    return 0


def check(python: str) -> int:
    """Run all linters, the later ones too where an earlier one found something."""
    import subprocess

    codes = [subprocess.call([python, "-P", "-m", *command]) for command in CHECKS]
    return 1 if any(codes) else 0


def become(command: list[str]) -> int:
    """Run the program in the place of this one; where the system has no such thing, as a child."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        import subprocess

        return subprocess.call(command)
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
