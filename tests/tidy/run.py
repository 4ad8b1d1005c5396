#!/usr/bin/env python3
"""The tidy rules as tests: first the checker's own, then the tree."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tidy  # noqa: E402
import tidy_test  # noqa: E402

outcome = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(
    unittest.defaultTestLoader.loadTestsFromModule(tidy_test))
violations = tidy.run(pathlib.Path(__file__).resolve().parents[2])
for violation in violations:
    print(violation)
bad = len(outcome.failures) + len(outcome.errors)
print(f"{outcome.testsRun - bad + (not violations)} passed, {bad + bool(violations)} failed")
sys.exit(1 if bad or violations else 0)
