"""What a machine has to have before ./dev gpu is worth its time, in at most half a minute: each lack in one line."""
import ctypes
import re
import subprocess

LEAST_DRIVER = 13000  # as cuDriverGetVersion says it
LEAST_MAJOR = 8  # compute capability
MAJOR_ATTRIBUTE = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
FIRST_KERNEL = "CudaRuntime.AGraphReplaysWhatWasCaptured"


def driver(programs, limit_s):
    """Why the driver or its first device will not do; None: they do."""
    if programs.rehearse:
        return None
    library, version, handle, major = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    return judged_driver(version.value, major_of(library, handle, major))


def major_of(library, handle, major):
    library.cuDeviceGet(ctypes.byref(handle), 0)
    library.cuDeviceGetAttribute(ctypes.byref(major), MAJOR_ATTRIBUTE, handle)
    return major.value


def judged_driver(version, major):
    if version < LEAST_DRIVER:
        return (f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}; one for "
                f"{LEAST_DRIVER // 1000}.{LEAST_DRIVER % 1000 // 10} or newer is needed (580 or newer)")
    if major < LEAST_MAJOR:
        return f"the first device has compute capability {major}.x; {LEAST_MAJOR}.0 or newer is needed"
    return None


def starts(command, limit_s):
    """Why a program does not start; None: it does. Its libraries are the usual reason."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit_s,
                              stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return f"{command[0]} is not built; ./dev gpu builds it where a CUDA toolkit is"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{' '.join(map(str, command))} has not ended after {limit_s} s"
    if done.returncode == 0:
        return None
    said = (done.stdout + done.stderr).strip().splitlines()
    lacking = [line for line in said if re.search("GLIBC|shared libraries|no device: ", line)]
    return f"{command[0]} ends with {done.returncode}: {(lacking or said or ['it says nothing'])[-1]}"


def programs_start(programs, limit_s):
    for program in programs.served():
        if program.name == "load_generator":  # it begins at once, and needs no library that the others do not
            continue
        if fault_of := starts([program, "--help"], limit_s):
            return fault_of
    return None


def tests_start(programs, limit_s):
    for binary in programs.tests:
        if fault_of := starts([binary, "--gtest_list_tests"], limit_s):
            return fault_of
    return None


def first_kernel(programs, limit_s):
    return starts([programs.tests[0], f"--gtest_filter={FIRST_KERNEL}"], limit_s)


CASES = {"driver": driver, "programs": programs_start, "tests": tests_start, "first kernel": first_kernel}


def fault(case, programs, limit_s):
    """Why `case` fails, in one line; None: it does not."""
    return CASES[case](programs, limit_s)
