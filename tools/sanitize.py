"""The tests that work the compiled core hardest, on a core built with one of gcc's sanitizers.

Works in a copy of the checkout, so that the build in place stays what it is. A report of any
process, a worker's too, is a failure. A test that failed without one runs once more: a process that
is forked while a thread is in the sanitizer's allocator waits for it for ever, however `FORKS_LATE`
avoids that. Run as
``python -m tools.sanitize address|undefined|thread [arguments of pytest]``; with
arguments, they alone say which tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tools.smoke.__main__ import copy_checkout

# Each list is a process of its own, and not one of xdist: that has a thread beside the tests.
PARTS = [["tests/contract"], ["tests/unit", "tests/fault"]]
OURS = [
    "--ignore-glob=tests/unit/test_bench*.py",
    "-m",
    "not evidence and not gpu and not alone",
]
# The thread sanitizer cannot follow a fork beside threads: it gets the tests of threads alone.
NAMED = "thread or permutation or queue or wire or global_rng_lock"
BESIDE = (
    # processes beside threads
    *("loader_inside_a_thread", "fork_with_threads", "ends_silently", "switching_threads"),
    "that_a_worker_thread_starts",
    *("digests_of_threads", "augmentation_in_threads", "not_seeded_before_each_batch"),
    *("test_feeding_loader", "static_training"),  # threads of paddle's executor
)
ON_THREADS = ["-k", f"({NAMED}) and not ({' or '.join(BESIDE)})"]
# The address sanitizer ends a process that cannot have the memory that it asks for.
UNLIMITED = ["-k", "not memory_that_is_missing"]
TESTS = {"address": [*OURS, *UNLIMITED], "undefined": OURS, "thread": [*OURS, *ON_THREADS]}
OPTIONS = {
    # Python frees little at exit, and paddle frees arrays by another function than made them.
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0:abort_on_error=1:handle_segv=0"
        ":handle_sigbus=0",
        "PYTHONMALLOC": "malloc",
    },
    "undefined": {"UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1"},
    # pyarrow's jemalloc takes all its locks at a fork, and the sanitizer counts 64 at most.
    "thread": {
        "TSAN_OPTIONS": "exitcode=0:die_after_fork=0",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "JE_ARROW_MALLOC_CONF": "narenas:1",
    },
}
VARIABLE = {"address": "ASAN_OPTIONS", "undefined": "UBSAN_OPTIONS", "thread": "TSAN_OPTIONS"}
SOME_FAILED = 1  # pytest's exit code
# A sitecustomize.py, for every Python that is started.
FORKS_LATE = """
import os, time

def other_threads_are_asleep():
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            try:
                with open(f"/proc/self/task/{task}/stat") as file:
                    if file.read().rpartition(") ")[2][0] == "R":
                        return False
            except OSError:
                pass  # it has ended
    return True

def wait():
    until = time.monotonic() + 1.0
    while not other_threads_are_asleep() and time.monotonic() < until:
        time.sleep(0.0005)

os.register_at_fork(before=wait)
"""
RUNTIME = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}


def main(arguments: list[str]) -> int:
    """Build, run, and return the exit code of the tests."""
    if not arguments or arguments[0] not in TESTS:
        print(__doc__, file=sys.stderr)
        return 2
    kind, more = arguments[0], arguments[1:]
    with tempfile.TemporaryDirectory(prefix=f"lodreader-{kind}-") as name:
        checkout = copy_checkout(Path(name, "checkout"))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(build, cwd=checkout, env={**clean, "READER_SANITIZE": kind}, check=True)
        reports = Path(name, "reports")
        reports.mkdir()
        Path(name, "sitecustomize.py").write_text(FORKS_LATE)
        said = f"{OPTIONS[kind][VARIABLE[kind]]}:log_path={reports}/report"
        environment = {
            **clean,
            **OPTIONS[kind],
            VARIABLE[kind]: said,
            "LD_PRELOAD": " ".join((path_of(RUNTIME[kind]), path_of("libstdc++.so"))),
            "PYTHONPATH": name,
            # the sanitizer's dlopen does not find paddle's own libraries, which lie beside it
            "LD_LIBRARY_PATH": str(Path(sysconfig.get_path("platlib"), "paddle", "libs")),
        }
        # A process under a sanitizer is a few times slower: a hang still ends.
        tests = [sys.executable, "-m", "pytest", "-q", "-o", "timeout=150"]
        tests += ["-o", "faulthandler_timeout=0"]  # has a thread for each test
        parts = [more] if more else [[*part, *TESTS[kind]] for part in PARTS]
        commands = [
            [*tests, "-o", f"cache_dir={name}/cache-{number}", *part]
            for number, part in enumerate(parts)
        ]
        running = [subprocess.Popen(each, cwd=checkout, env=environment) for each in commands]
        codes = [each.wait() for each in running]
        for number, command in enumerate(commands):
            if codes[number] == SOME_FAILED:
                print(f"sanitize: what failed runs once more: {' '.join(parts[number])}")
                again = [*command, "--last-failed"]
                codes[number] = subprocess.run(again, cwd=checkout, env=environment).returncode
        found = [path.read_text(errors="replace") for path in sorted(reports.iterdir())]
        if kind == "thread":  # the sanitizer misses locks of paddle, which is built without it
            every = [race for text in found for race in text.split("=" * 18)]
            found = [race for race in every if "reader/_core" in race]
        print(*found, sep="\n")
        print(f"sanitize: {kind}: {len(found)} reports")
        return 1 if found else max(abs(code) for code in codes)


def path_of(library: str) -> str:
    """Where the compiler keeps a runtime library."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={library}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"sanitize: the compiler has no {library}: install it, libasan8 and the like")
    return str(Path(path).resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
