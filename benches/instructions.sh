#!/bin/sh
# Counts the instructions of a span on its own thread in each phase, by valgrind's callgrind.
set -eu
cd "$(dirname "$0")/.."
program=$(cargo bench --quiet --bench instructions --features control,cpu-time,serving --no-run --message-format=json |
    sed -n 's/.*"name":"instructions".*"executable":"\([^"]*\)".*/\1/p')
printf '%-18s%12s%12s%12s%12s%12s%12s%12s%12s%12s\n' instructions \
    empty off finished waiting listening counted others recording timed
for workload in plain 'two fields' 'eight fields' 'entered again'; do
    printf '%-18s' "$workload"
    for phase in empty off finished waiting listening counted others recording timed; do
        # Ten rounds of ten thousand spans. Only `race` and its thread are counted.
        total=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*support*race*' \
            "$program" "$phase" "$workload" 10 2>&1 | sed -n 's/.*Collected : //p')
        printf '%12s' $((total / 100000))
    done
    echo
done
