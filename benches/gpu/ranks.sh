#!/usr/bin/env bash
# Runs the program `ranks` with real NCCL and several ranks on ONE GPU: each process says that it is another host, so
# that NCCL does not refuse the same device twice and talks over sockets on the loopback.
#
#     ranks.sh OUT [WORLD] [PART...]     PART: exact faults cost hang, by default all of them; judge
#
# The programs are those of RANKS and KERNSPAN, by default target/release/ranks and target/release/kernspan. NCCL and
# NVRTC are found in PyTorch's wheels if they are not installed otherwise.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?a folder} world=${2:-4}
parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(exact faults cost hang)
ranks=${RANKS:-target/release/ranks} kernspan=${KERNSPAN:-target/release/kernspan}
mkdir -p "$out"
# cudarc looks for names without a version, which wheels do not have.
links=$(mktemp -d)
for name in nccl nvrtc; do
    if ! ldconfig -p | grep -q "lib$name\\.so "; then
        file=$(python3 -c 'import glob, nvidia, sys
print(next(path for root in nvidia.__path__ for path in glob.glob(f"{root}/*/lib/lib{sys.argv[1]}.so.*")))' "$name")
        ln -s "$file" "$links/lib$name.so"
        libraries=${libraries:+$libraries:}$(dirname "$file")
    fi
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$links${libraries:+:$libraries}
export NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=${NCCL_DEBUG:-WARN}
failed=0

# With MPS the kernels of several processes run side by side.
mps_start() {
    command -v nvidia-cuda-mps-control >/dev/null || return 0
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    nvidia-cuda-mps-control -d
}
mps_stop() { if [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then echo quit | nvidia-cuda-mps-control; fi; }

run() { # SECONDS FOLDER ARGUMENT...
    local limit=$1 folder=$2 pids=() status=0 rank
    shift 2
    rm -rf "$folder"
    mkdir -p "$folder"
    for rank in $(seq 0 $((world - 1))); do
        RANK=$rank WORLD_SIZE=$world NCCL_HOSTID=host$rank timeout -s KILL "$limit" "$ranks" "$folder" "$@" \
            2>"$folder/rank$rank.err" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    [ "$status" = 0 ] || tail -n 3 "$folder"/rank*.err
    return "$status"
}

exact() {
    for plugin in on off; do
        echo "== exact, plugin $plugin"
        run 120 "$out/exact-$plugin" fault=clean plugin=$plugin steps=105 || failed=1
    done
}

faults() {
    for fault in clean gpu loader host sometimes; do
        on=$((RANDOM % world))
        echo "== fault $fault on rank $on"
        run 120 "$out/$fault" fault=$fault on=$on steps=65 || failed=1
        [ ! -x "$kernspan" ] || "$kernspan" ranks "$out/$fault" || failed=1
    done
}

# RUNS runs of each fault on a random rank, 20 by default, and as many without: is the rank named, and its span?
judge() {
    local round fault on
    declare -A span=([clean]='' [gpu]=backward [loader]=load [host]=optimizer [sometimes]=load)
    for round in $(seq "${RUNS:-20}"); do
        for fault in clean gpu loader host sometimes; do
            on=$((RANDOM % world))
            run 120 "$out/judge" fault=$fault on=$on steps=45 >"$out/judge.txt" || failed=1
            grep -q WRONG "$out/judge.txt" && { cat "$out/judge.txt"; failed=1; }
            "$kernspan" ranks --json "$out/judge" | python3 -c 'import json, sys
fault, on, span = sys.argv[1:]
late = [(it["rank"], (it["cause"] or {}).get("path", [""])[-1]) for it in json.load(sys.stdin)["late"]]
expected = [] if fault == "clean" else [(int(on), span)]
print(fault, "right" if late == expected else f"WRONG: {late} instead of {expected}")' $fault $on "${span[$fault]}"
        done
    done | tee "$out/judged.txt" | grep WRONG
    sort "$out/judged.txt" | cut -d: -f1 | uniq -c
    # The loop is a process of its own, whose variables are lost.
    [ "$(grep -c ' right$' "$out/judged.txt")" = $((5 * ${RUNS:-20})) ] || failed=1
}

# Medians of rank 0, plugin off and on in turns, while nothing is recorded.
cost() {
    local round plugin
    for round in 1 2 3 4 5; do
        for plugin in off on; do
            run 120 "$out/cost" fault=clean plugin=$plugin record=off steps=305 | grep '^rank 0 ' || failed=1
        done
    done | tee "$out/cost.txt" | sed 's/^/   /'
    for plugin in false true; do
        sed -n "s/.*plugin $plugin,.*median \([0-9.]*\) ms.*/\1/p" "$out/cost.txt" | sort -n | sed -n 3p |
            sed "s/^/median of 5 medians, plugin $plugin: /; s/\$/ ms/"
    done
}

# One rank stays in `load`. The others wait for it until all are killed; their files are written after 5 seconds.
hang() {
    on=$((RANDOM % world))
    echo "== hang of rank $on"
    run 25 "$out/hang" fault=hang on=$on steps=40 record=off
    ls "$out/hang"
    [ ! -x "$kernspan" ] || "$kernspan" ranks hang "$out/hang" || failed=1
}

mps_start
for part in "${parts[@]}"; do "$part"; done
mps_stop
exit "$failed"
