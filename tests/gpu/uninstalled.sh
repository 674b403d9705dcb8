#!/usr/bin/env bash
# uninstalled.sh LIBRARIES COMMAND...: run a command from this checkout on a machine where twill cannot be installed, with kernels from a
# folder that `twill build --all -o LIBRARIES` wrote elsewhere, or from an archive of its files (`tar cJf LIBRARIES.tar.xz -C LIBRARIES .`,
# a twentieth of the size). Needs PyTorch and TVM-FFI. For instance
#   tests/gpu/uninstalled.sh LIBRARIES python3 -m tests.gpu --budget 400 --json found.json
#   tests/gpu/uninstalled.sh LIBRARIES python3 -m benchmarks.attention --budget 400 --json times.json
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [ -f "$1" ]; then
    libraries=$site/libraries
    mkdir "$libraries"
    tar xf "$1" -C "$libraries"
else
    libraries=$(cd "$1" && pwd)
fi
shift
# where an installation would have put them: twill.kernels and twill.schedules are folders beside twill in a checkout
cp -r "$root/twill" "$site/twill"
cp -r "$root/kernels" "$site/twill/kernels"
cp -r "$root/schedules" "$site/twill/schedules"
export PYTHONSAFEPATH=1 PYTHONPATH="$site:$root${PYTHONPATH:+:$PYTHONPATH}" TWILL_LIBRARIES="$libraries"
cd "$root"
"$@"
