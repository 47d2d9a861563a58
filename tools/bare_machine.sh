#!/usr/bin/env bash
# Run a command where nothing is installed but what the README asks for: Python, git, make, a compiler, and what every
# Linux has. It runs in a new clone of HEAD that lies alone in a folder, with an empty home and temporary folder, and with
# no variables but those that lead pip to a package index.
#
#   tools/bare_machine.sh [--in FOLDER] COMMAND [ARGUMENT ...]
#
# FOLDER, a new one, stays: FOLDER/checkout is the clone, FOLDER/home the home. Without it, nothing stays. As root, the
# optional programs are hidden by their paths, too; else only PATH lacks them, and the first line says so.
set -euo pipefail

folder=
if [ "${1-}" = --in ]; then
    folder=$2
    shift 2
fi
if [ $# = 0 ]; then
    echo "usage: tools/bare_machine.sh [--in FOLDER] COMMAND [ARGUMENT ...]" >&2
    exit 2
fi
source=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
mkdir "$folder/home" "$folder/tmp"
git clone --quiet "$source" "$folder/checkout"
optional=$(python3 "$folder/checkout/tests/programs.py" "$folder/bin")

isolate=()
if unshare --mount true 2>/dev/null; then
    isolate=(unshare --mount --propagation private)
    echo "bare machine in $folder: a PATH of its own, and optional programs hidden in a mount namespace" >&2
else
    echo "bare machine in $folder: a PATH of its own alone (a mount namespace needs root)" >&2
fi

kept=()
while IFS= read -r line; do
    kept+=("$line")
done < <(env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|TESTS)=' || true)

export folder optional hide="${#isolate[@]}"
${isolate[@]+"${isolate[@]}"} bash -euc '
    if [ "$hide" != 0 ]; then
        : >"$folder/hidden"
        for name in $optional; do
            for place in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /opt/*/bin; do
                if [ -f "$place/$name" ]; then mount --bind "$folder/hidden" "$(readlink -f "$place/$name")"; fi
            done
        done
    fi
    cd "$folder/checkout"
    exec env -i HOME="$folder/home" TMPDIR="$folder/tmp" PATH="$folder/bin" LANG=C.UTF-8 "$@"
' bash ${kept[@]+"${kept[@]}"} "$@"
