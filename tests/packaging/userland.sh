#!/bin/bash
# Runs in a new system what scripts/packaging/userlands has copied to /ddprun.
set -eu
cd /ddprun
fail() {
  echo "$1"
  exit 1
}

said=$(bin/ddprun --nproc_per_node 2 userland_worker.py 2>&1) || fail "code $? of two Python workers: $said"
[ "$(grep -c 'libddp 0.* of 2$' <<<"$said")" -eq 2 ] || fail "two Python workers: $said"

said=$(bin/ddprun --nproc_per_node 2 --preload json userland_worker.py 2>&1) || fail "a warm parent: $said"
[ "$(grep -c 'libddp 0.* of 2$' <<<"$said")" -eq 2 ] || fail "two workers of a warm parent: $said"

said=$(bin/ddprun --nproc_per_node 2 --max-restarts 1 userland_worker.py once 2>&1) || fail "after a restart: $said"
grep -q 'rank 1' <<<"$said" || fail "the failure is not reported: $said"

code=0
said=$(bin/ddprun --nproc_per_node 2 userland_worker.py always 2>&1) || code=$?
[ "$code" -ne 0 ] && grep -q 'rank 1' <<<"$said" || fail "code $code after a failure: $said"

bin/ddp_store --port 0 >store.txt 2>&1 &
until grep -qE '[0-9]{4,}' store.txt; do kill -0 $!; done
kill $! && wait $! || true
for entry in /proc/[0-9]*/comm; do
  case $(cat "$entry" 2>/dev/null) in ddprun | jobkeeper | ddp_store) fail "$entry is left" ;; esac
done
