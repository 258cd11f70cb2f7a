#!/bin/sh
# benchmarks/device_check.sh OUTDIR [--layers N]: the CUDA components on this machine's GPU, in nine minutes at most and
# without a network; a tiny shape where there is no GPU. OUTDIR/device_check.json grows with every assembly that is done.
set -eu
OUT=${1:?usage: benchmarks/device_check.sh OUTDIR [--layers N]}
shift
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
exec timeout --signal=INT --kill-after=20 540 python -m benchmarks.device_check --out "$OUT" "$@"
