#!/usr/bin/env bash
# One AddressSanitizer and UndefinedBehaviorSanitizer build of the core, the parsers and the sessions, with every
# fuzz corpus replayed in it, and the faults that real processes meet. What is not watched comes from the release
# build: generated code, the command line program, and the fast kernels, whose layouts and indices the watched
# reference kernels share (cmake/house.cmake says what is watched by which of the two).
#   run.sh          all of it, but for tests whose code test_sim lives through as well
#   run.sh full     these too
#   run.sh NAME...  only these targets, or `process`, or `storm`: 10,000 clients that leave in every phase
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p .cache
BUILD=build-asan
TESTS=(test_common test_common_json test_common_config test_common_runtime test_common_text test_kernels
  test_kernels_collectives test_worker_ranks fuzz_rank_messages
  test_worker_load test_worker_model test_worker_runner test_worker_kv test_worker_scheduler
  test_worker_rpc test_router_stream test_router_chat test_router_http test_router_grpc test_sim
  fuzz_json fuzz_tokenizer fuzz_chat_template fuzz_safetensors fuzz_gguf fuzz_model_config
  fuzz_worker_frame fuzz_router_frame fuzz_http_request fuzz_http2_guard fuzz_grpc_connection fuzz_step_packet
  test_common_http2 fuzz_http2_session
  test_router_discovery test_router_keys test_router_admission fuzz_endpoint_slices fuzz_key_file fuzz_open_inference)
# Long to compile, and of code that test_sim, the router and workers of a random fleet, runs too.
FULL=(test_worker_engine test_router_link test_router_dispatch test_router_pipeline)
PROGRAMS=(quire-router quire-worker)
PLAIN=(quire quire_proto quire_kernels_cpu)  # targets of the release build
# Of tests/process: what takes things down while they are in use, and bad input.
FAULTS=(test_a_killed_worker_never_ends_a_stream_silently_and_comes_back
  test_interrupt_drains_and_a_second_one_ends_at_once test_a_client_that_leaves_frees_the_worker
  test_bad_requests_name_what_is_wrong_and_hurt_nobody test_broken_model_files_are_refused_by_name
  test_a_taken_port_is_named)
STORM=test_clients_that_leave_free_everything_and_change_nothing_for_others  # of tests/fault
log=.cache/build-asan.log
jobs=${QUIRE_JOBS:-$(nproc)}

[ -f build/build.ninja ] || cmake -G Ninja -S . -B build >"$log" 2>&1
ninja -C build -j "$jobs" "${PLAIN[@]}" >"$log" 2>&1 || { tail -n 20 "$log"; echo "0 passed, 1 failed"; exit 1; }
cmake -G Ninja -S . -B $BUILD -DQUIRE_ASAN=ON -DQUIRE_PLAIN_BUILD="$PWD/build" >"$log" 2>&1 || { tail -n 20 "$log"; echo "0 passed, 1 failed"; exit 1; }
known=$(cat $BUILD/tests.list)
wanted=()
faults=0
asked=" $* "
[ $# -eq 0 ] && asked=" ${TESTS[*]} process "
[ "$*" = full ] && asked=" ${TESTS[*]} ${FULL[*]} process "
for name in "${TESTS[@]}" "${FULL[@]}" process; do
  if [[ "$asked" != *" $name "* ]]; then continue; fi
  if [ "$name" = process ]; then faults=1; elif grep -qx "$name" <<<"$known"; then wanted+=("$name"); fi
done
targets=("${wanted[@]}")
storm=0
[[ " $* " == *" storm "* ]] && storm=1
[ $((faults + storm)) -gt 0 ] && targets+=("${PROGRAMS[@]}")
begin=$SECONDS
ninja -C $BUILD -j "$jobs" "${targets[@]}" >"$log" 2>&1 || {
  grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" | tail -n 40; echo "0 passed, 1 failed"; exit 1; }
mkdir -p $BUILD/bin && cp -u build/bin/quire $BUILD/bin/  # it starts its neighbours
echo "built in $((SECONDS - begin)) s"

# Leaks count; the Rust bridge and the C++ side free with their own allocators.
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
# Left to the release build: statistics over many draws, and what watches the fast kernels or repeats a walk in
# larger sizes.
export LEFT_test_kernels='Sampler.DrawsFollow*:Scan.TheDrawIsThatOfAPlainLoop:*AgreesWithFloat64AndInAnyPieces/1:*AgreesWithFloat64AndInAnyPieces/2'
LEFT_test_kernels+=':*AgreesWithFloat64AndInAnyPieces/3:Program.BFloat16Activations:Program.WindowsHeadNormsAndSoftCaps'
LEFT_test_common_text='ChatTemplateTest.BombsEndInErrors:*BeginningOfSequence*:TokenizerTest.EqualsTheLibrarysOwnPipeline'
LEFT_test_common_text+=':GemmaGgufTest*:*RealTokenizer*:DetokenizerTest.EverySplitOf*'  # Rust: not instrumented
LEFT_test_worker_engine='*IdentityTest.RandomNeighboursChangeNothing*:*IdentityTest.ResumeAtEveryIndex*:*OneAnswerTest*'
LEFT_test_worker_engine+=':*ChoicesIdentity.NeighboursAndSiblings*:EnginePrefixCacheTest.AMillionBlocks*'
LEFT_test_worker_engine+=':EnginePrefixCacheTest.SnapshotsUnderLoadEndExact:EnginePrefixCacheTest.ASnapshotWaitsForItsReader'
LEFT_test_worker_engine+=':BeamSearchEngine.NothingAroundItChangesIt'
LEFT_test_worker_scheduler='FairnessTest.NoTenantWithWorkFallsBelowItsShare'
export LEFT_test_worker_scheduler LEFT_test_common_text LEFT_test_worker_engine
export QUIRE_SIM_SEEDS=${QUIRE_SIM_SEEDS:-12}  # of the 1,000 that the release build runs, of the 60 and 40 besides
run_one() {
  local out=.cache/asan-$1.log filter=() left=LEFT_$1
  [[ $1 == test_* ]] && filter=(--gtest_brief=1 "--gtest_filter=-*Slow*:${!left:-}")
  local from=$SECONDS
  timeout 600 "build-asan/tests/$1" "${filter[@]}" >"$out" 2>&1
  local code=$?
  if [ $code -eq 0 ]; then echo "ok $1 $((SECONDS - from)) s"; return; fi
  echo "FAIL $1 (exit $code)"
  grep -nE 'FAILED|ERROR: |runtime error|SUMMARY' "$out" | head -n 20
  tail -n 30 "$out"
}
export -f run_one
begin=$SECONDS
report=$(printf '%s\n' "${wanted[@]}" | xargs -r -P "$jobs" -I{} bash -c 'run_one {}')
echo "$report" | grep -v '^ok '
echo "$report" | grep '^ok ' | sort -k3 -nr | head -n 5
passed=$(grep -c '^ok ' <<<"$report")
failed=$((${#wanted[@]} - passed))
echo "ran in $((SECONDS - begin)) s"

# A process that is killed has no exit code to look at: what a sanitizer said is in a file.
run_processes() {
  local from=$SECONDS
  rm -f .cache/asan-process.*
  if ASAN_OPTIONS+=:log_path=$PWD/.cache/asan-process UBSAN_OPTIONS+=:log_path=$PWD/.cache/asan-process \
    QUIRE_TEST_BUILD=$BUILD python3 "$@" && ! ls .cache/asan-process.* 2>/dev/null; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    head -n 60 .cache/asan-process.* 2>/dev/null
  fi
  echo "$1 ran in $((SECONDS - from)) s"
}
if [ $faults -eq 1 ]; then
  run_processes tests/process/run.py "${FAULTS[@]}"
  run_processes tests/fault/run.py $STORM
fi
[ $storm -eq 1 ] && run_processes tests/fault/run.py --long $STORM
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
