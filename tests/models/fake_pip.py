"""Stands in for pip: `fake_pip.py SHELF download … --dest FOLDER NAME==VERSION` serves what lies on a shelf.

For a requirement the shelf holds REQUIREMENT.whl (delivered), REQUIREMENT.log (printed, then failure), or, beside the
wheel, REQUIREMENT.hang (half of the wheel comes, then nothing more; the process id is written into that file).
"""

import os
import sys
import threading
from pathlib import Path

shelf, arguments = Path(sys.argv[1]), sys.argv[2:]
wanted, dest = arguments[-1], Path(arguments[arguments.index("--dest") + 1])
with open(shelf / "calls", "a") as calls:
    calls.write(" ".join(arguments) + "\n")

if (log := shelf / f"{wanted}.log").exists():
    print(log.read_text(), file=sys.stderr)
    sys.exit(1)
wheel = (shelf / f"{wanted}.whl").read_bytes()
name = f"{wanted.replace('==', '-')}-py3-none-any.whl"
if (hang := shelf / f"{wanted}.hang").exists():
    unpack = Path(os.environ["TMPDIR"], "pip-unpack-fake")
    unpack.mkdir()
    hang.write_text(str(os.getpid()))
    (unpack / name).write_bytes(wheel[: len(wheel) // 2])
    threading.Event().wait()
(dest / name).write_bytes(wheel)
