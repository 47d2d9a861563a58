#!/usr/bin/env bash
# `train-bench gpu-check` on a machine that has torch and reaches no registry: in the root of the checkout,
#   bash bench/gpu/device.sh MINUTES OUT [OPTION ...]
# takes wheels from .whl and prepared data from .carry/cache.tar.xz, if they are there, and writes to the folder OUT.
set -u
minutes=$1 out=$2
shift 2
if ls .whl/*.whl > /dev/null 2>&1; then
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl || exit 1
fi
export PYTHONPATH=$PWD:/tmp/site PYTHONUNBUFFERED=1 XDG_CACHE_HOME=/tmp/gpu_check_cache
mkdir -p "$XDG_CACHE_HOME" "$out"
if [ -f .carry/cache.tar.xz ]; then
    python3 -c "import tarfile; tarfile.open('.carry/cache.tar.xz').extractall('$XDG_CACHE_HOME', filter='data')"
fi
folder=/tmp/gpu_check # a second command on the same machine continues it
mkdir -p "$folder"
[ -f "$out/gpu_check.json" ] && cp "$out/gpu_check.json" "$folder"
python3 -m train_bench gpu-check --minutes "$minutes" --output "$folder" "$@"
code=$?
cp "$folder"/gpu_check.json "$folder"/gpu_check.md "$out"
for path in "$folder"/parts/*/profile/profile.json "$folder"/parts/*/run/result_0.txt; do
    part=${path#"$folder"/parts/}
    [ -f "$path" ] && cp "$path" "$out/${part%%/*}_$(basename "$path")"
done
exit $code
