#!/usr/bin/env bash
# Builds what OTLP is tested against, Jaeger 2 and Prometheus, and prints where each lies. What is built already is not built again.
#
#     integrations/otlp/tests/collectors/build.sh            # both
#     integrations/otlp/tests/collectors/build.sh jaeger     # one
#
# They go to $KERNSPAN_COLLECTORS, by default target/collectors. Needs Go 1.26.
set -euo pipefail
cd "$(dirname "$0")/../../../.."
folder=${KERNSPAN_COLLECTORS:-${CARGO_TARGET_DIR:-target}/collectors}

# Where Go's own archive goes is often on nobody's PATH.
export PATH=$PATH:/usr/local/go/bin
# One C library less to ask for, and nothing in the programs of where they were built. What is downloaded can be deleted as other files can.
# Prometheus comes with a workspace of which it is the only part that comes.
export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -modcacherw' GOWORK=off

# Its own module file and checksums, which `go install` will not have: both replace a module. So it is built where its source lies.
build() { # NAME MODULE VERSION [TAGS]
    local program=$folder/$1-$3 answer source
    if [ ! -x "$program" ]; then
        if ! command -v go >/dev/null; then
            echo "*** no Go here: $1 cannot be built, and what is sent over OTLP is NOT checked ***" >&2
            exit 1
        fi
        mkdir -p "$folder"
        # Others may be about the same. Without `flock` they do it, too, which does no harm.
        local lock
        exec {lock}>"$program.lock"
        if command -v flock >/dev/null; then flock "$lock"; fi
    fi
    if [ ! -x "$program" ]; then
        echo "building $1 $3 with $(go version)" >&2
        # From outside of any module, so that the answer is about this one.
        answer=$(cd / && go mod download -json "$2@$3") || { echo "$answer" >&2; exit 1; }
        source=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$answer")
        # Two may build at once: each has a file of its own until it is whole.
        local whole
        whole=$(realpath "$folder")/$1-$3
        # Nobody looks into them with a debugger, and they need not be fast: that saves time to build them.
        local flags='all=-dwarf=false -N -l'
        (cd "$source" && go build -tags "${4:-}" -gcflags "$flags" -ldflags '-s -w' -o "$whole.$$" "./cmd/$1" >&2)
        mv "$whole.$$" "$whole"
    fi
    realpath "$program"
}

for name in "${@:-both}"; do
    case $name in
    # Jaeger 2.13: it has two numbers, and to Go it is the other.
    jaeger | both) build jaeger github.com/jaegertracing/jaeger v1.76.0 ;;&
    # Prometheus 3.15, without what looks for servers in clouds.
    prometheus | both) build prometheus github.com/prometheus/prometheus v0.315.0 remove_all_sd ;;&
    jaeger | prometheus | both) ;;
    *) echo "what is $name? There are jaeger and prometheus" >&2; exit 2 ;;
    esac
done
