#!/usr/bin/env bash
# A ThreadSanitizer build of what runs on several threads and links no gRPC (Debian's Abseil and gRPC are not
# instrumented): mutexes and queues, the log, metrics, the event loop, the kernels' pool, the engine's thread.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p .cache
BUILD=build-tsan
TESTS=(test_common_log test_common_metrics test_common_runtime test_kernels_collectives test_kernels test_worker_engine)
declare -A ONLY=([test_kernels]='ThreadPool*:*Program*:*Backend*' [test_worker_engine]='EngineThread*:*Driver*')
log=.cache/build-tsan.log
jobs=${QUIRE_JOBS:-$(nproc)}
cmake -G Ninja -S . -B $BUILD -DQUIRE_TSAN=ON >"$log" 2>&1 || { tail -n 20 "$log"; echo "0 passed, 1 failed"; exit 1; }
ninja -C $BUILD -j "$jobs" "${TESTS[@]}" >"$log" 2>&1 || {
  grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" | tail -n 40; echo "0 passed, 1 failed"; exit 1; }
export TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1:suppressions=$PWD/tests/sanitizers/threads.supp
passed=0 failed=0
for name in "${TESTS[@]}"; do
  out=.cache/tsan-$name.log
  if timeout 600 "$BUILD/tests/$name" --gtest_brief=1 --gtest_filter="${ONLY[$name]:-*}-*Slow*" >"$out" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL $name"
    grep -nE 'FAILED|WARNING: |SUMMARY' "$out" | head -n 20
    tail -n 40 "$out"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
