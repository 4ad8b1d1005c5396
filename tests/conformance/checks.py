"""What the clients' scripts share: a list of checks, each judged on its own. conformance_test.py reads what is printed."""
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def run_all(client):
    for function in CHECKS:
        try:
            function()
            print(f"ok   {client} {function.__name__}", flush=True)
        except Exception as error:  # each check is judged on its own
            print(f"FAIL {client} {function.__name__}: {type(error).__name__}: {error}", flush=True)
