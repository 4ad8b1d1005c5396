"""The demo model does what it is asked for: the hero, its name, the place, in a story or a poem."""
import subprocess
import sys

from harness import DEMO, Server, expect


def test_nine_of_ten_answers_have_what_their_prompt_asks_for():
    with Server() as server:
        for temperature in (0, 0.7):
            done = subprocess.run([sys.executable, DEMO / "follow.py", f"--url=http://127.0.0.1:{server.port}",
                                   f"--temperature={temperature}", "--show"], capture_output=True, text=True, timeout=120)
            expect(done.returncode == 0 and "of 200 answers follow their prompt" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:])
