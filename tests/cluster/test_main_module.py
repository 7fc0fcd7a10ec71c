"""Programs without a guard around what they do: a cluster's workers do not run them again."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

PROGRAM = """
    import sys
    import psutil
    import reader
    from beside import row
    from tests.cluster.actors import lander_of

    print("runs", flush=True)

    class Own:
        def __len__(self):
            return 400

        def __getitem__(self, index):
            return row(index)

    env = {"env_vars": {"PYTHONPATH": sys.argv[1]}}
    backend = reader.Ray(resources={"CPU": 0.5}, runtime_env=env)
    loader = reader.DataLoader(Own(), batch_size=4, num_workers=2, backend=backend)
    found = []
    for n, batch in enumerate(loader):
        found += batch[:, 0].tolist()
        if n == 10:  # the lander, and what would start it again
            lander = psutil.Process(lander_of(loader))
            for process in (lander.parent(), lander):
                process.kill()
    assert found == list(range(400)), found
    loader.close()
    left = [process.cmdline() for process in psutil.Process().children()]
    assert ["multiprocessing.resource_tracker" in str(each) for each in left] == [True], left
    print("ends", flush=True)
"""

BESIDE = """
import numpy as np


def row(index):
    return np.full(3, index)
"""


@pytest.mark.parametrize("options", [["../program.py"], ["-m", "program"]])
def test_program_runs_once(cluster: Any, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "beside.py").write_text(BESIDE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, *options, str(ROOT)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": path, "RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "runs\nends\n", done.stderr
