#!/usr/bin/env bash
# progress_test.sh REPOSITORY: scripts/with_progress, over builds that only print.
set -uo pipefail
progress=$1/scripts/with_progress
wrong() { printf 'progress_test: %s\n' "$1" >&2; exit 1; }

build='echo "[1/3] Building a.o"; echo "[2/3] Building b.o"; echo "b.cpp: warning: odd"; echo "[3/3] Linking c"'
said=$("$progress" sh -c "$build") || wrong "a build that ends with 0 failed"
[ "$said" = "b.cpp: warning: odd" ] || wrong "in its first minute a build said: $said"
said=$(DDPRUN_PROGRESS_SECONDS=0 "$progress" sh -c "$build")
[ "$said" = "$(sh -c "$build")" ] || wrong "with every line shown a build said: $said"

failing='echo "[1/3] Building a.o"; echo "[2/3] Building b.o"; echo "FAILED: b.o"; echo "b.cpp: error" >&2; exit 3'
said=$("$progress" sh -c "$failing") && wrong "a build that failed ended with 0"
status=$?
[ "$status" = 3 ] || wrong "a build that ended with 3 ended with $status"
[ "$said" = $'[2/3] Building b.o\nFAILED: b.o\nb.cpp: error' ] || wrong "a build that failed said: $said"
