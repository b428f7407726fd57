#!/usr/bin/env bash
# Builds Jaeger 2 and Prometheus, against which OTLP is tested, unless they are built already, and prints their paths.
#
#     integrations/otlp/tests/collectors/build.sh            # both
#     integrations/otlp/tests/collectors/build.sh jaeger     # one
#
# They go to $KERNSPAN_COLLECTORS, by default target/collectors. Needs Go 1.26.
set -euo pipefail
cd "$(dirname "$0")/../../../.."
folder=${KERNSPAN_COLLECTORS:-${CARGO_TARGET_DIR:-target}/collectors}

# The folder of Go's own archive is often not on the PATH.
export PATH=$PATH:/usr/local/go/bin
# Without cgo, no C compiler is needed. Paths of this machine stay out of the programs, and downloaded modules can be
# deleted like other files. Prometheus' workspace file names folders that are not downloaded.
export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -modcacherw' GOWORK=off

# Builds a program in the folder of its source, with its own module file and checksums: `go install` refuses these, as
# both programs replace modules.
build() { # NAME MODULE VERSION [TAGS]
    local program=$folder/$1-$3 answer source
    if [ ! -x "$program" ]; then
        if ! command -v go >/dev/null; then
            echo "*** no Go here: $1 cannot be built, and what is sent over OTLP is NOT checked ***" >&2
            exit 1
        fi
        mkdir -p "$folder"
        # Another process may build the same. Without `flock` both do, which does no harm.
        local lock
        exec {lock}>"$program.lock"
        if command -v flock >/dev/null; then flock "$lock"; fi
    fi
    if [ ! -x "$program" ]; then
        echo "building $1 $3 with $(go version)" >&2
        # Outside of any module, so that no other module file decides the version.
        answer=$(cd / && go mod download -json "$2@$3") || { echo "$answer" >&2; exit 1; }
        source=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$answer")
        # Two processes may build at once: each writes a file of its own, and renames it at the end.
        local whole
        whole=$(realpath "$folder")/$1-$3
        # Without debug information and optimization, which are not needed here, they build faster.
        local flags='all=-dwarf=false -N -l'
        (cd "$source" && go build -tags "${4:-}" -gcflags "$flags" -ldflags '-s -w' -o "$whole.$$" "./cmd/$1" >&2)
        mv "$whole.$$" "$whole"
    fi
    realpath "$program"
}

for name in "${@:-both}"; do
    case $name in
    # Jaeger 2.13, whose version as a Go module is another.
    jaeger | both) build jaeger github.com/jaegertracing/jaeger v1.76.0 ;;&
    # Prometheus 3.15, without service discovery.
    prometheus | both) build prometheus github.com/prometheus/prometheus v0.315.0 remove_all_sd ;;&
    jaeger | prometheus | both) ;;
    *) echo "unknown program $name: expected jaeger or prometheus" >&2; exit 2 ;;
    esac
done
