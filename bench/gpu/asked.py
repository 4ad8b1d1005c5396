"""What is asked of a GPU's figures, and the shares and ratios that follow from those that were taken.

A figure that was not taken has no share, and what is asked of it says so.
"""
SHAPES = ["Qwen2.5-0.5B", "Llama-3.2-1B", "Llama-3.1-8B", "tiny-llama"]  # the last one in rehearsals
READ = "read_bandwidth"

# name: (over, under, unit); 100 × over / under where the unit is %.
QUOTIENTS = {
    "decode_attention_share_of_bandwidth": ("decode_attention_bandwidth", READ, "%"),
    "prefill_attention_over_library": ("prefill_attention", "library_gemm_4096_rows", "%"),
    **{f"gemm_{rows}_rows_share_of_bandwidth": (f"gemm_{rows}_rows_weight_bandwidth", READ, "%") for rows in (1, 16, 64)},
    **{f"decode_over_torch_{shape}": (f"decode_{shape}", f"torch_decode_{shape}", "x") for shape in SHAPES},
}
# name: (with batch invariance, without it)
COSTS = {f"cost_of_batch_invariance_{what}_{shape}": (f"{what}_{shape}", f"{what}_{shape}_variant")
         for what in ("decode", "throughput_1000_1000") for shape in SHAPES}

# (figure, at least or at most, what, unit)
ASKED = [
    ("decode_share_of_bandwidth_Llama-3.2-1B", ">=", 65, "%"),
    ("decode_share_of_bandwidth_Llama-3.1-8B", ">=", 75, "%"),
    ("decode_share_of_bandwidth_Llama-3.1-8B-Q4_K", ">=", 55, "%"),
    ("decode_over_torch_Llama-3.2-1B", ">=", 1, "x"),
    ("decode_over_torch_Llama-3.1-8B", ">=", 1, "x"),
    ("throughput_share_of_roof_Llama-3.1-8B", ">=", 60, "%"),
    ("throughput_share_of_roof_Llama-3.1-8B_fp8", ">=", 60, "%"),
    ("throughput_share_of_roof_Qwen2.5-0.5B", ">=", 25, "%"),
    ("decode_attention_share_of_bandwidth", ">=", 60, "%"),
    ("prefill_attention_over_library", ">=", 45, "%"),
    ("gemm_4096_rows_over_library", ">=", 70, "%"),
    *((f"gemm_{rows}_rows_share_of_bandwidth", ">=", 70, "%") for rows in (1, 16, 64)),
    ("sample_256_rows", "<=", 200, "us"),
    ("host_work_p50_256_rows_Qwen2.5-0.5B", "<", 100, "us"),
    ("idle_gap_p50_256_rows_Qwen2.5-0.5B", "<", 20, "us"),
    ("idle_gap_p99_256_rows_Qwen2.5-0.5B", "<", 20, "us"),
    ("idle_gap_p50_1_rows_Llama-3.1-8B", "<", 20, "us"),
    ("idle_gap_p99_1_rows_Llama-3.1-8B", "<", 20, "us"),
    # Told; no number is asked for.
    ("cost_of_batch_invariance_decode_Llama-3.1-8B", "", None, "%"),
    ("cost_of_batch_invariance_throughput_1000_1000_Llama-3.1-8B", "", None, "%"),
    ("throughput_1000_1000_Llama-3.1-8B", "", None, "tokens/s"),
    ("throughput_1000_1000_Llama-3.1-8B_fp8", "", None, "tokens/s"),
    ("load_Llama-3.1-8B", "", None, "s"),
    ("start_to_first_token_Llama-3.1-8B", "", None, "s"),
]


def follows(figures):
    """Shares, ratios and costs of figures by name: {name: (value, unit)}."""
    found = {}
    for name, (over, under, unit) in QUOTIENTS.items():
        if over in figures and figures.get(under):
            found[name] = ((100 if unit == "%" else 1) * figures[over] / figures[under], unit)
    for name, (held, given_up) in COSTS.items():
        if held in figures and figures.get(given_up):
            found[name] = (100 * (1 - figures[held] / figures[given_up]), "%")
    return {name: (float(f"{value:.6g}"), unit) for name, (value, unit) in found.items()}


def verdicts(figures):
    """[{"figure", "asked", "value", "verdict"}] of all that is asked; `figures` and what follows from them, by name."""
    told = []
    for name, how, what, unit in ASKED:
        value = figures.get(name)
        good = {">=": lambda: value >= what, "<=": lambda: value <= what, "<": lambda: value < what}.get(how)
        verdict = "not run" if value is None else "told" if good is None else "met" if good() else "short"
        told.append({"figure": name, "asked": f"{how} {what} {unit}" if how else unit, "value": value, "verdict": verdict})
    return told
