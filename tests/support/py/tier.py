"""What pytest was asked for, for modules that size their cases by it; tests/conftest.py fills it in before they load."""
LONG = RECORD = WRITE_REFERENCE = False
# Which machine code tests make: in the normal tier of the newest that is common; that of sm_80 comes with --long.
GPU_ARCHITECTURES = ("90a",)


def take(options):
    global LONG, RECORD, WRITE_REFERENCE, GPU_ARCHITECTURES
    LONG, RECORD, WRITE_REFERENCE = options.long, options.record, options.write_reference
    GPU_ARCHITECTURES = ("90a", "80") if LONG else ("90a",)
