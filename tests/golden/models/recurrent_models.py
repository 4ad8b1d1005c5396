"""What GGUF files of families with Mamba-2 share; their modules import this."""


def add_state_sizes(writer, taps, state, groups, inner, heads):
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(heads)


def add_mamba(writer, prefix, hidden, sizes, floats):
    """The vectors of a layer of Mamba-2, of type `floats`; returns the names and shapes of its matrices. sizes: taps, state,
    groups, inner width, heads."""
    taps, state, groups, inner, heads = sizes
    mixed = inner + 2 * groups * state
    writer.add(prefix + "ssm_conv1d.weight", (mixed, taps), floats)
    writer.add(prefix + "ssm_conv1d.bias", (mixed,), floats, 0.0, 0.1)
    writer.add(prefix + "ssm_dt.bias", (heads,), floats, 0.0, 0.1)
    writer.add(prefix + "ssm_a", (heads, 1), floats, -0.08, 0.02)
    writer.add(prefix + "ssm_d", (heads, 1), floats, 0.0, 0.75)
    writer.add(prefix + "ssm_norm.weight", (groups, inner // groups), floats, 1.0, 0.2)
    return [("ssm_in", (inner + mixed + heads, hidden)), ("ssm_out", (hidden, inner))]
