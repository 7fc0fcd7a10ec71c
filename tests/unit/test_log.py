"""Lines of the log: with a name if no logging is set up, else in the form that was set up."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAY = "from reader.log import log; log.warning('worker %d is slow', 3); log.info('unseen')"
SETUPS = {
    "": ("", "reader: worker 3 is slow\n"),
    "of the root": (
        "import logging; logging.basicConfig(format='%(name)s|%(message)s')",
        "reader|worker 3 is slow\n",
    ),
    "of the logger": (
        (
            "import logging as l; l.getLogger('reader').propagate = False;"
            " l.getLogger('reader').addHandler(l.StreamHandler())"
        ),
        "worker 3 is slow\n",
    ),
    "that is silent": (
        "import logging; logging.getLogger('reader').addHandler(logging.NullHandler())",
        "",
    ),
    "without a last resort": ("import logging; logging.lastResort = None", ""),
    "of a level": ("import logging; logging.getLogger('reader').setLevel('ERROR')", ""),
}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("is_before", [True, False])
def test_a_line_has_the_name_unless_logging_is_set_up(setup: str, is_before: bool) -> None:
    code, said = SETUPS[setup]
    lines = [code, "import reader.log"] if is_before else ["import reader.log", code]
    command = [sys.executable, "-c", "\n".join([*lines, SAY])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == said
