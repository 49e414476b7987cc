#!/usr/bin/env python3
"""Runs kernels of compiled AMD machine code on the host, on the instruction emulator of a checkout of tinygrad
(github.com/tinygrad/tinygrad; test/mockgpu is in no package; tried with commit a9069c177a). TINYGRAD names its folder; a C
compiler and clang are needed, Python packages are not. The stand-in for the HIP runtime (tests/hip) starts it and asks it to
run each kernel: a line a request on standard input, a line an answer. tools/run_on_amd_emulator.py runs the tests.

Facts about registers and descriptors are from LLVM's "User Guide for AMDGPU Backend" (kernel descriptor, initial kernel
execution state)."""
import ctypes
import fcntl
import functools
import hashlib
import mmap
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# e_flags & 0xff of an ELF for AMD, by what the emulator calls it.
FAMILIES = {0x3F: "cdna", 0x4C: "cdna"}  # gfx90a, gfx942
FAMILIES.update({mach: "rdna3" for mach in (0x41, 0x46, 0x47, 0x44, 0x43, 0x4A)})  # gfx1100-1103, 1150, 1151
FAMILIES.update({mach: "rdna4" for mach in (0x48, 0x4E)})  # gfx1200, gfx1201
# Write-backs and invalidations of caches, which the emulator has none of: (mask, first word, bytes).
CACHE_INSTRUCTIONS = {
    "rdna3": [(0xFFFC0000, 0xE0AC0000, 8), (0xFFFC0000, 0xE0B00000, 8)],  # buffer_gl0_inv, buffer_gl1_inv
    "rdna4": [(0xFFFFFF00, 0xEE0AC000, 12), (0xFFFFFF00, 0xEE0B0000, 12), (0xFFFFFF00, 0xEE13C000, 12)],  # global_*
    "cdna": [(0xFFFC0000, word << 16, 8) for word in (0xE0A0, 0xE0A4, 0xE0F8, 0xE0FC)],  # buffer_wbl2, inv, wbinvl1
}
UNKNOWN, RUN, SKIP, BARRIER, COPY_FIRST, EXCHANGE_ROWS, ZERO_FIRST, LOW_HALF, HIGH_HALF, ATOMIC, NEGATE, ACCUMULATORS, MULTIPLY_24, HIGH_REGISTERS, PRODUCT_F16, GET_PC, SET_PC = range(17)  # of amd_emulator_loop.c
ATOMICS = {"ADD": 0, "ADD_U32": 0, "MAX_I32": 1, "SMAX": 1, "MAX_U32": 2, "UMAX": 2}
ALL_ENDED, NEEDS_INSTRUCTION, TOO_LONG, FAULT = range(4)
MOST_INSTRUCTIONS = 200_000_000  # of one launch


class Instruction(ctypes.Structure):
    _fields_ = [("run", ctypes.c_uint64), ("order", ctypes.c_uint8 * 6), ("bytes", ctypes.c_uint8), ("kind", ctypes.c_uint8),
                ("to", ctypes.c_uint16), ("source", ctypes.c_uint16), ("low", ctypes.c_uint16), ("high", ctypes.c_uint16),
                ("literal", ctypes.c_uint32), ("lanes", ctypes.c_uint32), ("count", ctypes.c_uint32)]


class Wave(ctypes.Structure):
    _fields_ = [("buffers", ctypes.c_uint64 * 6), ("ended", ctypes.c_uint64)]


class Block(ctypes.Structure):
    _fields_ = [("table", ctypes.c_void_p), ("code", ctypes.c_uint64), ("words", ctypes.c_uint64),
                ("waves", ctypes.c_void_p), ("count", ctypes.c_int32), ("current", ctypes.c_int32),
                ("pc", ctypes.c_uint64), ("executed", ctypes.c_uint64), ("limit", ctypes.c_uint64),
                ("address", ctypes.c_uint64)]


def build_loop():
    """Compiles the inner loop once a version of it."""
    source = os.path.join(HERE, "amd_emulator_loop.c")
    key = hashlib.sha256(open(source, "rb").read()).hexdigest()[:16]
    path = os.path.join(cache_folder(), f"loop-{key}.so")
    if not os.path.exists(path):
        part = f"{path}.{os.getpid()}"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", source, "-o", part, "-lm"], check=True)
        os.replace(part, path)
    return ctypes.CDLL(path)


def cache_folder():
    folder = os.environ.get("VLLM_AMD_EMULATOR_CACHE") or os.path.join(tempfile.gettempdir(), f"vllm-amd-emulator-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def load_pickle(path):
    try:
        with open(path, "rb") as f:
            return pickle.load(f)
    except (OSError, EOFError, pickle.UnpicklingError):
        return {}


def add_to_pickle(path, entries):
    """Others may have added theirs, or do at the same time."""
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        part = f"{path}.{os.getpid()}"
        with open(part, "wb") as f:
            pickle.dump({**load_pickle(path), **entries}, f)
        os.replace(part, path)


class Instructions:
    """Compiled instructions: one native function stands for all that differ only in register numbers, and is kept in a
    file from run to run, since making one takes tinygrad a tenth of a second."""

    def __init__(self):
        self.keep = []
        with open(os.path.join(os.environ["TINYGRAD"], "test", "mockgpu", "amd", "emu.py"), "rb") as f, open(__file__, "rb") as g:
            theirs, ours = f.read(), g.read()
        self.version = hashlib.sha256(theirs + ours).hexdigest()[:16]
        self.file = os.path.join(cache_folder(), f"functions-{hashlib.sha256(theirs).hexdigest()[:16]}.pickle")
        # (family, class, base, mask, size) -> (machine code, or what tinygrad made where that depends on its place, buffers)
        self.made = load_pickle(self.file)
        self.ready = {}  # the same -> (address, buffers)
        self.by_kind = {}  # (family, class, size) -> [(mask, base)]
        self.new = 0
        for key in self.made:
            self.by_kind.setdefault((key[0], key[1], key[4]), []).append((key[3], key[2]))

    # tinygrad takes seconds to start, and is needed for what is new alone.
    @functools.cached_property
    def emu(self):
        sys.path.insert(0, os.environ["TINYGRAD"])
        os.environ.setdefault("CACHELEVEL", "0")
        from test.mockgpu.amd import emu
        return emu

    @functools.cached_property
    def device(self):
        assert self.emu
        from tinygrad.device import Device
        return Device["CPU"]

    def save(self):
        if self.new:
            add_to_pickle(self.file, self.made)
        self.new = 0

    def place(self, key):
        """Where a function and its buffers are, in this process."""
        if key not in self.ready:
            code, buffers = self.made[key]
            if not code.startswith(self.CODE):
                program = self.device.runtime(pickle.loads(code))
                self.keep.append(program)
                address = program.addr
            else:
                memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
                memory.write(code.removeprefix(self.CODE))
                self.keep.append(memory)
                address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self.ready[key] = (address, buffers)
        return self.ready[key]

    CODE = b"code:"

    def plain_code(self, elf):
        """Its machine code, if that is the same at any address."""
        one, two = self.device.runtime(elf), self.device.runtime(elf)
        first, second = (ctypes.string_at(p.addr, len(p.mem)) for p in (one, two))
        return self.CODE + first if first == second else pickle.dumps(elf)

    KEPT = ("bytes", "kind", "to", "source", "low", "high", "literal", "lanes", "count")

    def find_in(self, code, address):
        """The Instruction at an address, of which a file says what was found out before."""
        offset = address - code.base
        fields, raw, key = code.known.get(offset, (None, None, None))
        if key is not None and key not in self.made:  # another process made it
            self.made.update(load_pickle(self.file))
        if fields is not None and (key is None or key in self.made):
            i = Instruction(**dict(zip(self.KEPT, fields)))
            ctypes.memmove(address, raw, len(raw))
        else:
            i, key = self.find(address, code.family)
            fields = tuple(getattr(i, name) for name in self.KEPT)
            code.known[offset] = code.found[offset] = (fields, ctypes.string_at(address, i.bytes), key)
        if key is not None:
            i.run, buffers = self.place(key)
            i.order[:] = list(buffers) + [0] * (6 - len(buffers))
        return i

    def find(self, address, family):
        """The Instruction at an address, whose code may be changed (see amd_emulator_loop.c), and which function it is."""
        i = Instruction(lanes=64 if family == "cdna" else 32)
        raw = ctypes.string_at(address, 16)
        first = struct.unpack_from("<I", raw)[0]
        for mask, word, size in CACHE_INSTRUCTIONS[family]:
            if first & mask == word:
                i.bytes, i.kind = size, SKIP
                return i, None
        emu = self.emu
        # It has no flat accesses: none of those here are to shared or private memory, so they become global ones.
        if family == "rdna4" and first >> 24 == 0xEC:
            first |= 0x02000000
        elif family == "rdna3" and first >> 26 == 0x37 and first >> 16 & 3 == 0:
            first |= 2 << 16
        elif family == "cdna" and first >> 26 == 0x37 and first >> 14 & 3 == 0:
            first |= 2 << 14
            ctypes.c_uint8.from_address(address + 6).value = 0x7F  # no scalar address
            raw = raw[:6] + b"\x7f" + raw[7:]
        ctypes.c_uint32.from_address(address).value = first
        raw = struct.pack("<I", first) + raw[4:]
        inst = emu.decode_inst(raw, family)
        i.bytes = size = inst.size()
        op = getattr(inst, "op", None)
        barrier = op is not None and (op in emu._BARRIER_OPS or op in emu._BARRIER_SOP1_OPS)
        i.kind = BARRIER if barrier else RUN
        name = type(inst).__name__
        if getattr(op, "name", "") in ("S_GETPC_B64", "S_SETPC_B64"):  # how code jumps far
            i.to, i.source = first >> 16 & 0x7F, first & 0xFF
            i.kind = GET_PC if "GET" in op.name else SET_PC
            return i, None
        if getattr(op, "name", "").startswith("V_PERMLANEX16"):
            second, literal = struct.unpack_from("<II", raw, 4)
            i.to, i.source = first & 0xFF, second & 0xFF
            i.low, i.high = second >> 9 & 0x1FF, second >> 18 & 0x1FF
            i.literal, i.kind = literal, EXCHANGE_ROWS
            return i, None
        if getattr(op, "name", "").startswith("GLOBAL_ATOMIC") and family != "rdna3":
            value = int.from_bytes(raw[:12], "little")
            if value >> (52 if family == "rdna4" else 16) & 1:  # it returns the old value
                i.count, i.kind = ATOMICS[op.name.removeprefix("GLOBAL_ATOMIC_")], ATOMIC
                if family == "rdna4":
                    i.to, i.source, i.high, i.low = raw[4], raw[8], value >> 55 & 0xFF, first & 0x7F
                    offset, bits = value >> 72, 24
                else:
                    i.to, i.source, i.high, i.low = raw[7], raw[4], raw[5], raw[6] & 0x7F
                    offset, bits = first & 0x1FFF, 13
                i.literal = (offset - (offset >> bits - 1 << bits)) & 0xFFFFFFFF
                if i.low >= 124:
                    i.low = 255
                return i, None
        if getattr(op, "name", "").startswith("V_WMMA"):
            second, = struct.unpack_from("<I", raw, 4)
            c = second >> 18 & 0x1FF
            if c < 256:
                if c != 128:
                    raise RuntimeError(f"{inst!r}: a constant other than 0 as C")
                i.to, i.count, i.kind = first & 0xFF, 8, ZERO_FIRST
                second = second & ~(0x1FF << 18) | (256 + i.to) << 18
                ctypes.c_uint32.from_address(address + 4).value = second
                raw = raw[:4] + struct.pack("<I", second) + raw[8:]
                inst = emu.decode_inst(raw, family)
        if name == "DS" and "_D16" in op.name and ("LOAD" in op.name or "READ" in op.name):
            i.to, i.kind = raw[7], HIGH_HALF if op.name.endswith("_HI") else LOW_HALF
        if getattr(op, "name", "") == "V_MFMA_F32_16X16X16_F16":
            second, = struct.unpack_from("<I", raw, 4)
            if first >> 8 & 0x7F or second >> 29:
                raise RuntimeError(f"{inst!r}: a product with operands that are exchanged")
            i.to, i.source, i.low, i.high = first & 0xFF, second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF
            i.kind, i.count = PRODUCT_F16, first >> 15 & 1 | (second >> 27 & 3) << 1
            return i, None
        if "_U24" in getattr(op, "name", "") or "_I24" in getattr(op, "name", ""):
            parts = op.name.replace("_E32", "").replace("_E64", "").split("_")  # V MUL U32 U24, V MAD I32 I24
            selects = 6 | 6 << 3  # of both operands: 6 is all of it, 4 and 5 a half, 0 to 3 a byte
            if name.startswith("VOP2") and "_" not in name.removesuffix("_LIT") and parts[1] == "MUL" and parts[2] != "HI":
                i.to, i.source, i.low, i.high = first >> 17 & 0xFF, first & 0x1FF, 256 + (first >> 9 & 0xFF), 128
            elif name.startswith("VOP3") and "_" not in name.removesuffix("_LIT") and parts[1:3] != ["MUL", "HI"]:
                second, = struct.unpack_from("<I", raw, 4)
                i.to, i.source, i.low = first & 0xFF, second & 0x1FF, second >> 9 & 0x1FF
                i.high = second >> 18 & 0x1FF if parts[1] == "MAD" else 128
            elif name == "VOP2_SDWA" and parts[1] == "MUL" and parts[2] != "HI" and raw[5] == 6 and not (raw[6] | raw[7]) & 0x78:
                i.to, i.high = first >> 17 & 0xFF, 128
                i.source = raw[4] if raw[6] >> 7 else 256 + raw[4]
                i.low = (first >> 9 & 0xFF) + (0 if raw[7] >> 7 else 256)
                selects = raw[6] & 7 | (raw[7] & 7) << 3
            else:
                raise RuntimeError(f"{inst!r}: a product of 24 bits in a form that is not known here")
            i.literal = struct.unpack_from("<I", raw, i.bytes - 4)[0]
            i.kind, i.count = MULTIPLY_24, (parts[-1] == "I24") | selects << 1
            return i, None
        # On CDNA it takes registers from 128 on for upper halves, as RDNA 3 names them, where an operand has 16 bits.
        form = name.partition("_")[0]
        if family == "cdna" and form in ("VOP1", "VOP2", "VOPC") and re.search("[FUIB]16", op.name):
            sdwa = name.endswith("_SDWA")
            src0 = 256 + raw[4] if sdwa else first & 0x1FF
            src1 = 256 + (first >> 9 & 0xFF) if form != "VOP1" else 0
            to = first >> 17 & 0xFF if form != "VOPC" else 0
            if max(src0 - 256, src1 - 256, to) >= 128:
                if name.endswith("_DPP16"):
                    raise RuntimeError(f"{inst!r}: a register that the emulator may not see")
                used = {src0 - 256, src1 - 256, to}
                spare = next(r for r in range(0, 128, 3) if not used & {r, r + 1, r + 2})
                i.kind, i.source, i.to = HIGH_REGISTERS, spare, to
                i.low, i.high = (v - 256 if v >= 384 else 0 for v in (src0, src1))
                if i.low and not sdwa:
                    first = first & ~0x1FF | 256 + spare
                if i.high:
                    first = first & ~(0xFF << 9) | spare + 1 << 9
                if to >= 128:
                    first = first & ~(0xFF << 17) | spare + 2 << 17
                raw = struct.pack("<I", first) + (bytes([spare]) if i.low and sdwa else raw[4:5]) + raw[5:]
                ctypes.memmove(address, raw, size)
                inst = emu.decode_inst(raw, family)
        if name.endswith("_SDWA") and raw[6] >> 4 & 3:
            if not op.name.startswith("V_CVT_F32_F16") or raw[6] >> 4 & 3 != 1:
                raise RuntimeError(f"{inst!r}: a sign that the emulator may not see")
            i.count = 1
            if i.kind != HIGH_REGISTERS:
                i.to, i.kind = first >> 17 & 0xFF, NEGATE
            ctypes.c_uint8.from_address(address + 6).value = raw[6] & ~0x10
            raw = raw[:6] + bytes([raw[6] & ~0x10]) + raw[7:]
            inst = emu.decode_inst(raw, family)
        if name == "DS" and family == "cdna" and first >> 25 & 1 and ("STORE" in op.name or "WRITE" in op.name):
            if "2" in op.name.partition("_B")[0]:
                raise RuntimeError(f"{inst!r}: two accumulators to shared memory")
            i.count = max(1, int(op.name.rpartition("_B")[2]) // 32)
            i.source, i.to, i.kind = raw[5], 248 if raw[4] < 248 else 240, ACCUMULATORS
            first &= ~(1 << 25)
            ctypes.c_uint32.from_address(address).value = first
            ctypes.c_uint8.from_address(address + 5).value = i.to
            raw = struct.pack("<I", first) + raw[4:5] + bytes([i.to]) + raw[6:]
            inst = emu.decode_inst(raw, family)
        if name.endswith("_DPP16"):
            used = {first >> 17 & 0xFF, first >> 9 & 0xFF}  # its result and its other operand
            spare = next(r for r in (255, 254, 253) if r not in used)
            i.to, i.source, i.kind = spare, raw[4], COPY_FIRST
            ctypes.c_uint8.from_address(address + 4).value = spare
            raw = raw[:4] + bytes([spare]) + raw[5:]
            inst = emu.decode_inst(raw, family)
        value = int.from_bytes(raw[:size], "little")
        for mask, base in self.by_kind.get((family, name, size), ()):
            if value & mask == base:
                key = (family, name, base, mask, size)
                break
        else:
            key = self.make(raw, inst, name, family)
        return i, key

    def make(self, raw, inst, name, family):
        emu = self.emu
        handler = next((emu._INST_HANDLERS[c] for c in type(inst).__mro__ if c in emu._INST_HANDLERS), None)
        if handler is None:
            raise RuntimeError(f"the emulator has no {inst!r}")
        size = inst.size()
        context = emu._Ctx(size, 64 if family == "cdna" else 32)
        try:
            sink = handler(inst, context)
            base, mask, _ = context.canonical_mask(raw[:size + 4])
            sink = sink.replace(arg=emu.KernelInfo(name=f"i_{family}_{name}_{base:x}")).rtag(1)
            with emu.Context(NOOPT=1, CHECK_OOB=0, TUPLE_ORDER=0, EMULATED_DTYPES="", CAPTURE_PROCESS_REPLAY=0, PROFILE=0):
                program = emu.to_program(sink, self.device.renderer)
        except Exception as e:
            raise RuntimeError(f"the emulator cannot compile {inst!r}: {type(e).__name__}: {e}") from e
        key = (family, name, base, mask, size)
        self.made[key] = (self.plain_code(program.to_elf()), tuple(program.arg.globals))
        self.by_kind.setdefault((family, name, size), []).append((mask, base))
        self.new += 1
        return key


class CodeObject:
    """An AMD ELF, laid out in memory as a loader would."""

    def __init__(self, blob):
        if blob[:4] != b"\x7fELF":
            raise RuntimeError("not an ELF file")
        phoff, shoff = struct.unpack_from("<QQ", blob, 0x20)
        flags, = struct.unpack_from("<I", blob, 0x30)
        phentsize, phnum, shentsize, shnum = struct.unpack_from("<4H", blob, 0x36)
        if flags & 0xFF not in FAMILIES:
            raise RuntimeError(f"the emulator has no machine of number {flags & 0xFF:#x}")
        self.family = FAMILIES[flags & 0xFF]
        segments = [struct.unpack_from("<IIQQQQQQ", blob, phoff + phentsize * i) for i in range(phnum)]
        loads = [s for s in segments if s[0] == 1]
        self.bytes = max(s[3] + s[6] for s in loads)
        self.memory = mmap.mmap(-1, self.bytes + 4096)  # instructions are fetched 16 bytes at a time
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for _, _, offset, address, _, in_file, _, _ in loads:
            self.memory[address:address + in_file] = blob[offset:offset + in_file]
        self.symbols = {}
        sections = [struct.unpack_from("<IIQQQQIIQQ", blob, shoff + shentsize * i) for i in range(shnum)]
        for s in sections:
            if s[1] == 4 and s[5]:  # RELA
                raise RuntimeError("the code object has relocations, which this loader does not apply")
            if s[1] != 11:  # DYNSYM
                continue
            names = sections[s[6]][4]
            for at in range(s[4], s[4] + s[5], 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", blob, at)
                end = blob.index(b"\0", names + name)
                self.symbols[blob[names + name:end].decode()] = value
        self.words = self.bytes // 4
        self.digest = hashlib.sha256(blob).hexdigest()[:16]
        self.known, self.found = {}, {}  # by offset: Instructions.find_in
        self.table = (Instruction * self.words)()


class Emulator:
    MOST_WAVES = 32

    def __init__(self):
        self.loop = build_loop()
        self.loop.run_block.argtypes = [ctypes.POINTER(Block)]
        self.instructions = Instructions()
        self.modules = {}
        self.waves = {}
        # The emulator reads for lanes that are off too, at whatever address they have: room for every 32-bit one.
        no_reserve = 0x4000
        self.shared_memory = mmap.mmap(-1, (4 << 30) + (64 << 10), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
        self.shared = (ctypes.c_uint32 * (16 << 10)).from_buffer(self.shared_memory)
        self.executed = 0

    def file_of(self, code):
        return os.path.join(cache_folder(), f"code-{self.instructions.version}-{code.digest}.pickle")

    def load(self, name, blob):
        self.modules[name] = CodeObject(blob)

    def unload(self, name):
        code = self.modules.pop(name, None)
        if code is not None and code.found:
            self.instructions.save()
            add_to_pickle(self.file_of(code), code.found)

    def close(self):
        for name in list(self.modules):
            self.unload(name)

    def waves_of(self, size):
        if size not in self.waves:
            waves = (Wave * self.MOST_WAVES)()
            keep = []
            for w in waves:
                scalar, vector = (ctypes.c_uint32 * 320)(), (ctypes.c_uint32 * (256 * size))()
                accumulators = (ctypes.c_uint32 * (256 * size))() if size == 64 else vector
                keep.append((scalar, vector, accumulators))
                w.buffers[:] = [ctypes.addressof(scalar), ctypes.addressof(vector), 0, ctypes.addressof(self.shared), 0,
                                ctypes.addressof(accumulators)]
            self.waves[size] = (waves, keep)
        return self.waves[size][0]

    def launch(self, module, kernel, grid_x, grid_y, threads, dynamic_shared, kernarg):
        code = self.modules[module]
        if kernel + ".kd" not in code.symbols:
            raise RuntimeError(f"there is no kernel {kernel}")
        descriptor = code.base + code.symbols[kernel + ".kd"]
        raw = ctypes.string_at(descriptor, 64)
        shared, private, _ = struct.unpack_from("<III", raw)
        entry = descriptor + struct.unpack_from("<q", raw, 16)[0]
        rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", raw, 44)
        properties, preload = struct.unpack_from("<HH", raw, 56)
        if preload or properties & 0x3:
            raise RuntimeError(f"{kernel} needs preloaded arguments or a dispatch packet")
        size = 64 if code.family == "cdna" else 32
        if code.family != "cdna" and not properties & 1 << 10:
            raise RuntimeError(f"{kernel} was compiled for waves of 64")
        if shared + dynamic_shared > 64 << 10:
            raise RuntimeError(f"{kernel} asks for {shared + dynamic_shared} bytes of shared memory, a block has 65536")
        fixed = []
        for bit, values in ((2, [0, 0]), (3, [kernarg & 0xFFFFFFFF, kernarg >> 32]), (4, [0, 0]), (5, [0, 0]), (6, [0])):
            if properties >> bit & 1:
                fixed += values
        user_count = rsrc2 >> 1 & 31
        fixed += [0] * (user_count - len(fixed))
        waves = self.waves_of(size)
        count = (threads + size - 1) // size
        private_memory = (ctypes.c_uint8 * max(1, private * size * count))()
        for i in range(count):
            waves[i].buffers[4] = ctypes.addressof(private_memory) + private * size * i
        block = Block(ctypes.addressof(code.table), code.base, code.words, ctypes.addressof(waves), count, 0, 0, 0,
                      MOST_INSTRUCTIONS)
        poison = struct.pack("<I", 0x7FC0BEEF) * (16 << 10)
        for y in range(grid_y):
            for x in range(grid_x):
                user = list(fixed)
                if code.family == "rdna4":  # in scalars of the trap handler
                    user += [0] * (118 - len(user))
                    user[115], user[117] = y, x
                else:
                    for bit, value in ((7, x), (8, y), (9, 0)):
                        if rsrc2 >> bit & 1:
                            user.append(value)
                scalars = (ctypes.c_uint32 * len(user))(*user)
                ctypes.memmove(self.shared, poison, len(poison))
                for i in range(count):
                    self.loop.start_wave(ctypes.byref(waves[i]), ctypes.c_uint64(entry), scalars, len(user), i * size,
                                         min(size, threads - i * size), size, private)
                block.current = 0
                while (end := self.loop.run_block(ctypes.byref(block))) != ALL_ENDED:
                    if end == TOO_LONG:
                        raise RuntimeError(f"{kernel} ran {MOST_INSTRUCTIONS} instructions without ending")
                    if end == FAULT:
                        raw = ctypes.string_at(block.pc, 16)
                        raise RuntimeError(f"{kernel}, block {x}, {y}, wave {block.current}: no memory at {block.address:#x}, "
                                           f"asked for at {block.pc - code.base:#x} of the code by "
                                           f"{self.instructions.emu.decode_inst(raw, code.family)!r}")
                    self.need(code, block.pc, kernel)
        self.executed += block.executed
        return block.executed

    def need(self, code, pc, kernel):
        if pc % 4 or not code.base <= pc < code.base + code.bytes:
            raise RuntimeError(f"{kernel} jumped out of its code")
        if not code.known:
            code.known = load_pickle(self.file_of(code))
        code.table[(pc - code.base) // 4] = self.instructions.find_in(code, pc)


def serve():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints must not look like an answer
    emulator = None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    for line in sys.stdin:
        word, *args = line.split()
        try:
            if word == "memory":  # descriptor, address, bytes: of the device, at the same addresses as in the caller
                fd, address, size = map(int, args)
                fixed_noreplace = 0x100000
                got = libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed_noreplace, fd, 0)
                if got != address:
                    raise RuntimeError("the device's memory cannot be mapped at its address")
                emulator = Emulator()
                answers.write("ok\n")
            elif word == "load":  # name, file
                with open(args[1], "rb") as f:
                    emulator.load(args[0], f.read())
                answers.write("ok\n")
            elif word == "unload":
                emulator.unload(args[0])
                answers.write("ok\n")
            elif word == "launch":
                module, kernel, *numbers = args
                answers.write(f"ok {emulator.launch(module, kernel, *map(int, numbers))}\n")
                if emulator.instructions.new > 50:
                    emulator.instructions.save()
            else:
                raise RuntimeError(f"unknown request {word}")
        except Exception as e:  # the caller reports it
            answers.write("error " + " ".join(f"{type(e).__name__}: {e}".split()) + "\n")
    if emulator:
        emulator.close()


if __name__ == "__main__":
    serve()
