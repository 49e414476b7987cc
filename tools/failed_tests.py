#!/usr/bin/env python3
"""Prints what failed in the last ctest run of a build folder: name and the end of its output.

    tools/failed_tests.py build [lines of each]
"""
import pathlib
import re
import sys


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    lines = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    log = folder / "Testing" / "Temporary" / "LastTest.log"
    if not log.exists():
        print(f"{log} does not exist: no test was run")
        return
    tests = re.split(r"^\d+/\d+ Testing: ", log.read_text(errors="replace"), flags=re.M)[1:]
    for test in tests:
        if re.search(r"^Test (Passed|Pass Reason|Skipped)", test, flags=re.M):
            continue
        name, _, rest = test.partition("\n")
        output = rest.partition("-" * 58 + "\n")[2].partition("\n<end of output>")[0]
        print(f"--- failed: {name}")
        print("\n".join(output.splitlines()[-lines:]))
    names = log.with_name("LastTestsFailed.log")  # with those that could not even be started
    if names.exists():
        print("failed tests:", *names.read_text().split("\n"))


main()
