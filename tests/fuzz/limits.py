"""The longest input that the product hands to each parser that is fuzzed. `limits.py TARGET` prints it."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUEST = ("router/http/services.h", "max_body_bytes")  # --max-body-bytes: of what clients send
# The constant that bounds what each parser is given; of a flag, its default.
LIMITS = {
    "adapter_config": ("worker/adapters/peft_config.h", "kMaxAdapterConfigBytes"),
    "certificate": ("common/pem.h", "kMaxPemBytes"),
    "chat_template": ("common/text/chat_template.h", "kMaxTemplateInputBytes"),
    "client_address": ("router/http/services.h", "max_header_bytes"),
    "constraint": ("common/wire/constraint.h", "kMaxConstraintBytes"),
    "desired_adapters": ("worker/adapters/desired_adapters.h", "kMaxDesiredBytes"),
    "dialect": ("common/text/chat_template.h", "kMaxTemplateOutputBytes"),
    "endpoint_slices": ("router/discovery/kubernetes_source.h", "kMaxPageBytes"),
    "gguf": ("worker/load/gguf.h", "kMaxGgufStringBytes"),
    "grpc_connection": REQUEST,
    "http2_guard": REQUEST,
    "http2_session": REQUEST,
    "http_request": REQUEST,
    "json": REQUEST,
    "key_file": ("router/keys/key_table.h", "kMaxKeyFileBytes"),
    "metrics_text": ("router/worker_metrics.h", "kMaxWorkerMetricsBytes"),
    "model_config": ("worker/load/model_files.h", "kMaxConfigBytes"),
    "agent_request": REQUEST,
    "multipart": REQUEST,
    "open_inference": REQUEST,
    "quantisation": ("worker/load/model_files.h", "kMaxConfigBytes"),
    "rank_messages": ("worker/ranks/host_channel.h", "kMaxMessageBytes"),
    "router_frame": ("common/wire/values.h", "kMaxFrameBytes"),
    "safetensors": ("worker/load/safetensors.h", "kMaxSafetensorsHeaderBytes"),
    "step_packet": ("worker/ranks/host_channel.h", "kMaxMessageBytes"),
    "tokenizer": ("common/text/tokenizer.h", "kMaxTokenizerJsonBytes"),
    "worker_frame": ("common/wire/values.h", "kMaxFrameBytes"),
}


def longest(target):
    header, name = LIMITS[target]
    value = re.search(rf"\b{name} = ([^;]+);", (ROOT / header).read_text())[1]
    return eval(re.sub(r"size_t\{(\d+)\}|(\d)u\b|'", r"\1\2", value), {})  # a product or a shift of numbers


if __name__ == "__main__":
    print(longest(sys.argv[1]))
