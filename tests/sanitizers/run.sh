#!/usr/bin/env bash
# One AddressSanitizer and UndefinedBehaviorSanitizer build of the core, the parsers and the sessions, with
# every fuzz corpus replayed in it. Fast kernels, simulation and real processes run in the release build.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p .cache
TARGETS=(test_common test_common_json test_common_config test_common_runtime test_common_text
  test_worker_load test_worker_kv test_worker_scheduler test_worker_engine test_worker_rpc
  test_router_link test_router_dispatch test_router_stream test_router_chat test_router_pipeline
  test_router_http fuzz_json fuzz_tokenizer fuzz_chat_template fuzz_safetensors fuzz_gguf
  fuzz_model_config fuzz_worker_frame fuzz_router_frame fuzz_http_request fuzz_http2_guard fuzz_step_packet)
log=.cache/build-asan.log
cmake -G Ninja -S . -B build-asan -DQUIRE_ASAN=ON -DCMAKE_CXX_FLAGS_RELEASE=-O1 >"$log" 2>&1 || {
  tail -n 20 "$log"; echo "0 passed, 1 failed"; exit 1; }
known=$(cat build-asan/tests.list)
wanted=()
for target in "${TARGETS[@]}"; do grep -qx "$target" <<<"$known" && wanted+=("$target"); done
ninja -C build-asan "${wanted[@]}" >"$log" 2>&1 || { tail -n 40 "$log"; echo "0 passed, 1 failed"; exit 1; }
# Leaks count; the Rust bridge and the C++ side free with their own allocators.
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
passed=0 failed=0
for target in "${wanted[@]}"; do
  out=.cache/asan-$target.log
  if [[ $target == test_* ]]; then
    timeout 600 "build-asan/tests/$target" --gtest_brief=1 --gtest_filter='-*Slow*' >"$out" 2>&1
  else
    timeout 600 "build-asan/tests/$target" >"$out" 2>&1
  fi
  code=$?
  if [ $code -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL $target (exit $code)"
    grep -nE 'FAILED|ERROR: |runtime error|SUMMARY' "$out" | head -n 20
    tail -n 30 "$out"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
