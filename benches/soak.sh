#!/usr/bin/env bash
# Trains with more than 2,000 recorded windows close together, on a machine with an NVIDIA GPU, and checks each window
# against a count that is not kernspan's. Run it at each change of `src/gpu`.
#
#   cargo build --release -p gpu-bench
#   cargo build --release -p candle-bench --features cuda
#   cargo build --release -p burn-bench --features cuda
#   benches/soak.sh GPU-BENCH/soak [CANDLE-BENCH/soak [BURN-BENCH/soak]]
#
# Build the three into target folders of their own, as the CUDA features of Candle and Burn must not meet. Each run
# prints a row; step times are medians (means), as multiples of a step before the first window. It exits with 1 if any
# run failed.
#
# PARTS has the names of the parts to run:
#   times   one run at a time
#   sixty   sixty runs of the plan that once failed in most runs
#   soak    all plans
#   busy    ROUNDS times four runs, with four times as many threads as processors, so that threads are suspended
#           anywhere
#   starts  STARTS programs (200), one at a time, with random recorders and orders of lines: none may hang
#   requests  ROUNDS times windows on request, in the process and through its socket, with and without the flight
#           recorder and detaching; prints a sentence for each run instead of a row
# JOBS is the number of processes that run at once in `sixty` and `soak`.
set -uo pipefail
cuda=${1:?usage: benches/soak.sh GPU-BENCH/soak [CANDLE-BENCH/soak [BURN-BENCH/soak]]} candle=${2:-} burn=${3:-}
jobs=${JOBS:-4} parts=${PARTS:-times busy sixty soak}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work

run() { # PROGRAM PLAN…
    local said rc
    said=$(timeout 300 "$@" 2>&1)
    rc=$?
    # What a run says that hangs or crashes, stacks included, is printed whole.
    {
        printf '%s\n' "$said" | tail -n $((rc == 0 ? 6 : 2000))
        if [ $rc -ne 0 ]; then echo "FAILED with $rc: $*"; fi
    } | tee -a "$work/said"
}
export -f run

head() {
    printf '\n%s\n\n' "$1"
    printf '| %s ' records threads wait windows wrong 'of no span' lost 'before, µs' wait warm-up active after
    echo '| RAM, MB | GPU, MB |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|'
}

if [[ $parts == *times* ]]; then
    head 'One run at a time:'
    for program in $candle $cuda; do
        for plan in 'wait=15' 'wait=15 memory' 'wait=100 windows=6' 'wait=100 windows=6 memory'; do
            run "$program" $plan
            run "$program" $plan
        done
    done
fi

if [[ $parts == *busy* ]]; then
    head "As many runs at a time as there are processors, with four threads each:"
    for _ in $(seq "${ROUNDS:-10}"); do
        for plan in wait=0 wait=1 'wait=1 memory sync calls' 'wait=10 detach_ms=0 memory'; do
            echo "$cuda busy before=30 after=20 threads=4 windows=40 $plan"
        done
    done | xargs -P "$(nproc)" -I{} bash -c 'run {}'
fi

if [[ $parts == *starts* ]]; then
    "$(dirname "$cuda")/starts" many "${STARTS:-200}" "$RANDOM" | tee "$work/starts"
    grep -q '^0 of' "$work/starts" || echo 'FAILED: starts' >> "$work/said"
fi

if [[ $parts == *requests* ]]; then
    for _ in $(seq "${ROUNDS:-10}"); do
        for program in $cuda $candle $burn; do
            for plan in '' flight 'flight=gpu wait=50' detach_ms=1 socket 'socket watched'; do
                run "$program" requests windows=20 $plan
            done
        done
    done
fi

{
    if [[ $parts == *soak* && -n $burn ]]; then
        # These come first, as Burn tunes its kernels for a minute.
        for plan in 'wait=15 windows=40 memory' 'wait=1 windows=40' 'wait=100 windows=10'; do
            echo "$burn before=60 $plan"
        done
    fi
    if [[ $parts == *sixty* ]]; then
        for _ in $(seq 30); do
            echo "${candle:-$cuda} wait=15"
            echo "${candle:-$cuda} wait=15 memory"
        done
    fi
    if [[ $parts == *soak* ]]; then
        for records in '' 'memory' 'memory sync calls'; do
            for threads in 1 4; do
                few=$((threads == 1 ? 2 : 1))
                echo "$cuda before=30 after=20 threads=$threads wait=0 windows=$((60 * few)) $records"
                echo "$cuda before=30 after=20 threads=$threads wait=1 windows=$((60 * few)) $records"
                echo "$cuda before=30 after=20 threads=$threads wait=15 windows=$((30 * few)) $records"
                echo "$cuda before=30 after=20 threads=$threads wait=100 windows=$((10 * few)) $records"
            done
            if [[ -n $candle ]]; then
                echo "$candle before=30 after=20 wait=0 windows=60 $records"
                echo "$candle before=30 after=20 wait=1 windows=60 $records"
                echo "$candle before=30 after=20 wait=15 windows=40 $records"
                echo "$candle before=30 after=20 wait=100 windows=12 $records"
                # Four trainings take turns at the driver's locks, so that a step takes a tenth of a second.
                echo "$candle before=20 after=10 threads=4 wait=1 windows=10 $records"
            fi
        done
    fi
} > "$work/plans"
head "$(wc -l < "$work/plans") runs, $jobs at a time:"
xargs -P "$jobs" -I{} bash -c 'run {}' < "$work/plans"

rows=$(grep -c '^| ' "$work/said")
windows=$(awk -F'[|,]' '/^\| /{sum += $5} END {print sum + 0}' "$work/said")
failed=$(grep -c '^FAILED' "$work/said")
printf '\n%s runs with %s windows, %s failed\n' "$rows" "$windows" "$failed"
[[ $failed -eq 0 ]]
