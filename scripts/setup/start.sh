# start.sh COMMAND ARGS…: finds a Python that will do and hands over to it. All else is decided there.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P) || exit 1
made=${EDGESPEC_VENV:-${here%/scripts/setup}/.venv}/bin/python
for python in "$made" python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$python" -I -S "$here" "$@"
    fi
done
echo "edgespec needs Python 3.11 or newer and found none: install it (Debian, Ubuntu: apt install python3 python3-venv;" \
    "macOS: brew install python) and start again." >&2
exit 1
