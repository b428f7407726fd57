#!/usr/bin/env bash
# Has Nsight Compute select the kernels of spans by their NVTX ranges, and compares their numbers with those that
# the program `ranges` launches:
#
#     nvtx.sh [STEPS]
#
# The program is that of RANGES, by default target/release/ranges, and Nsight Compute that of NCU, by default ncu. Needs
# permission to read the GPU's counters. Fails if a number differs.
set -uo pipefail
cd "$(dirname "$0")/../.."
steps=${1:-5} ranges=${RANGES:-target/release/ranges} ncu=${NCU:-ncu}
failed=0
plain=$("$ranges" "$steps") || { echo "$plain"; exit 1; }
echo "$plain"
for span in attention mlp backward; do
    launched=$(sed -n "s/^launched $span //p" <<<"$plain")
    # A slash makes it a range of a thread's stack; at any depth, so kernels of spans inside it count as well.
    select=(--nvtx --nvtx-include "kernspan@$span/" --metrics gpu__time_duration.sum --csv)
    output=$("$ncu" "${select[@]}" "$ranges" "$steps") ||
        { echo "$output"; failed=1; continue; }
    # A row for each kernel and metric, which begins with the kernel's number.
    selected=$(grep -cE '^"[0-9]+",' <<<"$output")
    echo "$span: $selected of $launched kernels selected"
    [ "$selected" = "$launched" ] || failed=1
    grep -hE 'GPU not recorded|GPUs? |hint: ' <<<"$output" | head -2
done
exit $failed
