#!/usr/bin/env bash
# The tests inside the Rust bridge, in the profile and the folder that the build has used: its dependencies are there.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.." || exit 1
export PATH=$PATH:$HOME/.cargo/bin CARGO_TARGET_DIR=$PWD/.cache/cargo-target
out=$(cd common/text/bridge && cargo test --release --locked --quiet --lib 2>&1)
code=$?
result=$(grep -E '^test result:' <<<"$out" | tail -n 1)
passed=$(grep -oE '[0-9]+ passed' <<<"$result" | cut -d' ' -f1)
failed=$(grep -oE '[0-9]+ failed' <<<"$result" | cut -d' ' -f1)
if [ $code -ne 0 ] || [ -z "$passed" ]; then
  tail -n 40 <<<"$out"
  [ "${failed:-0}" -gt 0 ] || failed=1
fi
echo "${passed:-0} passed, ${failed:-0} failed"
[ "${failed:-1}" -eq 0 ]
