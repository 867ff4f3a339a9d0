#!/bin/bash
# The hook on real GPUs: no Slurm, no Redis, nothing installed. Needs a python with torch (CUDA), numpy, scipy and click,
# and a C compiler. About four minutes.
#
#     tests/gpu/check.sh [PYTHON]          RANKS=2 PAIRS=30 by default; with fewer GPUs than ranks they are shared
#
# On one GPU every rank calls itself another host (NCCL_HOSTID) and talks over sockets: NCCL refuses two ranks of one
# host on one GPU. Set GREYHOUND_STANDIN=1 to try the script itself where there is no GPU. Exit code 0: all passed.
set -u
cd "$(dirname "$0")/../.."
python=${1:-python3}
ranks=${RANKS:-2}
work=$(mktemp -d "${TMPDIR:-/tmp}/greyhound-gpu-check.XXXXXX")
step=$(mktemp -d /dev/shm/greyhound-gpu-check.XXXXXX)
pids=()
clean_up() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$work" "$step"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

sh hook/build.sh || exit 2
hook=$PWD/greyhound/_native/libgreyhound_hook.so
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || gpus=0
if [ "${GREYHOUND_STANDIN:-}" = 1 ]; then
    standin=$PWD/greyhound/_native/standin
    export LD_LIBRARY_PATH=$standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GREYHOUND_STANDIN_PAGE=$step/page
    "$python" - "$ranks" <<'PYTHON' || exit 2
import os, sys
from pathlib import Path
from greyhound.sandbox.page import StandinPage
StandinPage.create(Path(os.environ["GREYHOUND_STANDIN_PAGE"]), [f"localhost:{i}" for i in range(int(sys.argv[1]))]).close()
PYTHON
elif [ "$gpus" -lt 1 ]; then
    echo "check.sh: $python's torch sees no GPU: nothing was checked (GREYHOUND_STANDIN=1 tries the script itself)" >&2
    exit 2
fi

# RUN (on or off): all ranks, to their end.
run_ranks() {
    local run=$1 failed=0
    pids=()
    export MASTER_ADDR=127.0.0.1 WORLD_SIZE=$ranks OMP_NUM_THREADS=1
    MASTER_PORT=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export MASTER_PORT
    for ((rank = 0; rank < ranks; rank++)); do
        (
            export RANK=$rank LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks
            if [ "$gpus" -lt "$ranks" ]; then
                export NCCL_HOSTID=greyhound-$rank NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1
                export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
            fi
            if [ "$run" = on ]; then
                export GREYHOUND_DIR=$step GREYHOUND_NODE_INDEX=0 LD_PRELOAD=$hook${LD_PRELOAD:+:$LD_PRELOAD}
            fi
            exec timeout 150 "$python" greyhound/selftest/rank.py --out "$work" --run "$run" --pairs "${PAIRS:-30}"
        ) &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    pids=()
    return $failed
}

began=$SECONDS
run_ranks on
run_ranks off
"$python" -m greyhound.selftest "$work" --certificates "$work/certificates"
code=$?
echo "check.sh: $ranks ranks on $gpus GPUs, $((SECONDS - began)) s"
exit $code
