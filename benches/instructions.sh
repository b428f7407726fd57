#!/bin/sh
# Instructions a span takes in each phase, by valgrind's callgrind: the difference between a long and a short run.
set -eu
cd "$(dirname "$0")/.."
program=$(cargo bench --quiet --bench instructions --no-run --message-format=json |
    sed -n 's/.*"name":"instructions".*"executable":"\([^"]*\)".*/\1/p')
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | sed -n 's/.*Collected : //p'
}
printf '%-18s%12s%12s%12s%12s\n' 'instructions' empty off waiting recording
for workload in plain 'two fields' 'eight fields' 'entered again'; do
    printf '%-18s' "$workload"
    for phase in empty off waiting recording; do
        short=$(count "$phase" "$workload" 1)
        long=$(count "$phase" "$workload" 21)
        printf '%12s' $(((long - short) / 200000))
    done
    echo
done
