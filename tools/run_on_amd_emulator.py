#!/usr/bin/env python3
"""Runs this project's kernels as compiled AMD machine code without a card, on the emulator of instructions
(tools/amd_emulator.py says what it needs).

    TINYGRAD=folder tools/run_on_amd_emulator.py build-hip [--archs gfx1200,gfx1100,gfx942] [--filter GTEST_FILTER]
        [--most THREADS] [--log FILE] [--jobs N]

runs the tests of whole modules in that build (seam, op table, tiny models) on the stand-in for the HIP runtime
(tests/hip), once an architecture, and prints what ran, and which kernels of the module did not: a run of everything fails
if there are any. Of the op table those cases come first that run every kernel once, then the others, small ones first.
With --log a run goes on where one before it ended: what passed is not repeated as long as its kernels are the same."""
import argparse
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

from amd_emulator import CodeObject

BATCH_THREADS = 100_000  # of the kernels of op cases that share a process, which takes seconds to start
PROGRAMS = ("hip_stand_in_test", "hip_module_test", "hip_model_test")
OP_TEST = "Amd/OpRocm.AgreesWithTheInterpreterAsMachineCode/"


class Job:
    """A process: a test by its name, or cases of the op table in one type of values."""

    def __init__(self, arch, program, name, dtype="", cases=()):
        self.arch, self.program, self.name, self.dtype, self.cases = arch, program, name, dtype, list(cases)

    def filter(self):
        if not self.cases:
            return self.name
        families = {case.partition(".")[0] for case in self.cases}
        return ":".join(f"{OP_TEST}{self.arch}_{self.dtype}_{family}" for family in sorted(families))

    def names(self):
        return [f"{self.arch} {self.dtype}.{case}" for case in self.cases] or [f"{self.arch} {self.name}"]


def start(program, pattern, report, timeout, **variables):
    """Whether the tests passed, and what they printed."""
    environment = {**os.environ, "HIP_STAND_IN_REPORT": report, **variables}
    try:
        done = subprocess.run([program, f"--gtest_filter={pattern}", "--gtest_brief=1"], capture_output=True, text=True,
                              timeout=timeout, env={k: v for k, v in environment.items() if v is not None})
        return done.returncode == 0, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return False, f"longer than {timeout} s"


def words_of(report, first):
    with open(report, encoding="utf-8") as f:
        lines = [line.split() for line in f]
    return [words[1:] for words in lines if words[0] == first]


class Runner:
    def __init__(self, args):
        self.args = args
        self.passed = {}  # name -> {"code": of its kernels, "kernels": counts}
        self.failed = []
        if args.log and os.path.exists(args.log):
            with open(args.log, encoding="utf-8") as f:
                for line in f:
                    entry = json.loads(line)
                    for name in entry["names"] if entry["ok"] else ():
                        self.passed[name] = entry

    def set_architecture(self, arch):
        """Reads its code: names of all kernels of the module, and the state of each."""
        self.arch, self.code = arch, {}
        folder = os.path.join(self.args.build, "src", "vt", "gpu", "rocm", "code")
        for path in sorted(glob.glob(os.path.join(folder, f"*.{arch}.co"))):
            with open(path, "rb") as f:
                blob = f.read()
            state = hashlib.sha256(blob).hexdigest()
            self.code.update({s.removesuffix(".kd"): state for s in CodeObject(blob).symbols if s.endswith(".kd")})

    def state_of(self, kernels):
        return hashlib.sha256(" ".join(self.code.get(k, "") for k in sorted(kernels)).encode()).hexdigest()[:16]

    def program(self, name):
        return os.path.join(self.args.build, "examples", name)

    def is_done(self, name):
        entry = self.passed.get(name)
        return entry is not None and entry["code"] == self.state_of(entry["kernels"])

    def tests(self, name):
        """Jobs of a program's tests but for the op table's."""
        text = subprocess.run([self.program(name), "--gtest_list_tests", f"--gtest_filter={self.args.filter}"],
                              capture_output=True, text=True, check=True).stdout
        suite = ""
        for line in text.splitlines():
            test = line.partition("#")[0]
            if not test.startswith(" "):
                suite = test.strip()
            elif self.arch in test and not (suite + test.strip()).startswith((OP_TEST, "Amd/KernelsRocm.")):
                yield Job(self.arch, name, suite + test.strip())

    def op_cases(self):
        """(type, case) -> threads of each kernel that it runs, without the emulator."""
        with tempfile.NamedTemporaryFile() as report:
            _, output = start(self.program("hip_module_test"), f"Amd/KernelsRocm.*/{self.arch}", report.name, 3600,
                              TINYGRAD=None)
            cases = collections.defaultdict(dict)
            for part, kernel, threads in words_of(report.name, "part"):
                dtype, _, case = part.partition(".")
                cases[dtype, case][kernel] = int(threads)
            if not cases:
                sys.exit(f"the op table ran nothing on {self.arch}: {output[-2000:]}")
        return cases

    def cover(self, cases):
        """Few and small cases that run every kernel."""
        missing = set().union(*cases.values())
        chosen = []
        while missing:
            case = max(cases, key=lambda c: len(missing & cases[c].keys()) / (20_000 + sum(cases[c].values())))
            chosen.append(case)
            missing -= cases[case].keys()
        return chosen

    def op_jobs(self):
        cases = self.op_cases()
        threads = {case: sum(kernels.values()) for case, kernels in cases.items()}
        first = self.cover(cases)
        order = {case: i for i, case in enumerate(first)}
        rest = sorted((c for c in cases if c not in order and threads[c] <= self.args.most), key=threads.get)
        self.left_out = len(cases) - len(first) - len(rest)
        for group in (sorted(first, key=threads.get), rest) if not self.args.cover else (sorted(first, key=threads.get),):
            open_batches = {}
            for dtype, case in group:
                if self.is_done(f"{self.arch} {dtype}.{case}"):
                    continue
                batch, size = open_batches.get(dtype, ([], 0))
                if batch and size + threads[dtype, case] > BATCH_THREADS:
                    yield Job(self.arch, "hip_module_test", "", dtype, batch)
                    batch, size = [], 0
                open_batches[dtype] = (batch + [case], size + threads[dtype, case])
            for dtype, (batch, _) in open_batches.items():
                yield Job(self.arch, "hip_module_test", "", dtype, batch)

    def run(self, job):
        began = time.monotonic()
        with tempfile.NamedTemporaryFile() as report:
            cases = {"VLLM_OP_CASES": ":".join(job.cases)} if job.cases else {}
            ok, output = start(self.program(job.program), job.filter(), report.name, self.args.timeout, **cases)
            kernels = {kernel: int(count) for kernel, count in words_of(report.name, "kernel")}
        seconds = time.monotonic() - began
        entry = {"names": job.names(), "ok": ok, "seconds": round(seconds), "kernels": kernels, "code": self.state_of(kernels)}
        if not job.cases and "[  SKIPPED ]" in output:  # it is about what needs no emulator
            return
        if self.args.log:
            with open(self.args.log, "a", encoding="utf-8") as f:
                f.write(json.dumps(entry) + "\n")
        if self.args.verbose or not ok:
            names = ", ".join(job.names()[:3]) + (f" and {len(job.names()) - 3} more" if len(job.names()) > 3 else "")
            print(f"{'passed' if ok else 'FAILED'} {names}, {seconds:.0f} s", flush=True)
        if ok:
            self.passed.update({name: entry for name in job.names()})
        elif len(job.cases) > 1:  # which of them?
            for case in job.cases:
                self.run(Job(job.arch, job.program, "", job.dtype, [case]))
        else:
            print(output[-2000:], flush=True)
            self.failed += job.names()

    def run_architecture(self, arch):
        self.set_architecture(arch)
        self.left_out = 0
        jobs = [job for name in PROGRAMS for job in self.tests(name)
                if not self.is_done(job.names()[0])]
        if self.args.filter == "*":
            jobs += self.op_jobs()
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            list(pool.map(self.run, jobs))
        done = [name for name in self.passed if name.startswith(arch + " ") and self.is_done(name)]
        ran = set().union(*(self.passed[name]["kernels"] for name in done))
        idle = sorted(self.code.keys() - ran)
        print(f"{arch}: {len(done)} passed; {len(self.code) - len(idle)} of {len(self.code)} kernels ran; {self.left_out} op "
              "cases left out for their size" + "".join(f"\n  did not run: {kernel}" for kernel in idle), flush=True)
        return idle


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", help="a build folder of the rocm preset, with its hip_*_test programs")
    parser.add_argument("--archs", default="gfx1200,gfx1100,gfx942")
    parser.add_argument("--filter", default="*", help="of gtest, e.g. '*WordsRocm*'; the op table runs where there is none")
    parser.add_argument("--cover", action="store_true", help="of the op table only what runs every kernel once")
    parser.add_argument("--most", type=int, default=1 << 62, help="threads of an op case, unless its kernels need it")
    parser.add_argument("--log", help="a file: a line a process; what passed there is not run again")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--timeout", type=int, default=3600, help="seconds a process may take")
    parser.add_argument("--verbose", action="store_true", help="a line a process")
    args = parser.parse_args()
    if not os.path.isdir(os.path.join(os.environ.get("TINYGRAD", ""), "test", "mockgpu")):
        sys.exit("TINYGRAD must name a checkout of github.com/tinygrad/tinygrad: nothing was run")
    for name in PROGRAMS:
        if not os.path.exists(os.path.join(args.build, "examples", name)):
            sys.exit(f"{args.build} has no {name}: nothing was run")
    runner = Runner(args)
    idle = [kernel for arch in args.archs.split(",") for kernel in runner.run_architecture(arch)]
    print("".join(f"failed: {name}\n" for name in runner.failed) + f"{len(runner.passed)} passed, {len(runner.failed)} failed")
    return 1 if runner.failed or not runner.passed or (idle and args.filter == "*") else 0


if __name__ == "__main__":
    sys.exit(main())
