"""An interrupt ends a command wherever it is raised."""

import signal
import subprocess
import sys

import pytest

# The signal comes while the garbage collector calls a function of Python, where an exception is ignored.
PROGRAM = """
import gc, os, signal, time
from jaxattn.study import ending

signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored where a shell runs this in the background.
ending.on_terminate()
ending.on_terminate()
sent = []

def collected(phase, info):
    if not sent:
        sent.append(True)
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.1)

gc.callbacks.append(collected)
try:
    gc.collect()
    print("ignored")
    time.sleep(30)
    print("slept to its end")
except KeyboardInterrupt as error:
    print(type(error).__name__)
"""


def ended(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize(("name", "raised"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Terminated")])
def test_an_interrupt_within_the_garbage_collector_is_raised_again(name, raised):
    done = ended(PROGRAM.format(name=name))
    assert (done.stdout.split(), done.stderr) == (["ignored", raised], "")


def test_what_is_ignored_otherwise_is_told_as_before():
    program = """
from jaxattn.study import ending

class Fails:
    def __del__(self):
        raise ValueError("told")

ending.on_terminate()
Fails()
"""
    assert "ValueError: told" in ended(program).stderr


# A command with one worker, which writes into the command's output.
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""
WORKER = """
import signal, time
from jaxattn.study import ending
signal.signal(signal.SIGINT, signal.default_int_handler)
ending.with_parent()
print("ready", flush=True)
for asleep in range(2):  # A pool's worker takes up its next task after an interrupt.
    try:
        time.sleep(300)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_worker_ends_with_its_command(name):
    command = subprocess.Popen([sys.executable, "-c", PARENT, WORKER], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    assert command.stdout.readline() == "ready\n"
    command.send_signal(getattr(signal, name))
    # The output ends when the last process that holds it does.
    assert command.communicate(timeout=60)[0] == "stopped\n"
