/* The inner loop of tools/amd_emulator.py, which compiles it: runs the waves of one block, instruction by
   instruction, until all have ended, each up to its next barrier in turn. An instruction is a function of tinygrad's
   emulator on a wave's registers and memory; one that has none yet is given back to Python, which goes on afterwards. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

/* kCopyFirst: the function may write lanes that it has yet to read (DPP in place), so that it was made to read `to`, a
   register that the instruction does not use, which `from` is copied into before it and which gets its own values back
   after it. kExchangeRows: v_permlanex16_b32, which the emulator does wrong when a selector is a literal. kZeroFirst: a
   WMMA whose C is the constant 0, which it does wrong too: made to read its own result, `count` registers from `to`, that
   are 0 before it. kLowHalf, kHighHalf: a load from shared memory into half of `to`, of which the emulator puts the value
   into the low half and clears the other. kAtomic: one on global memory that returns the old value, which the emulator
   keeps to itself but for RDNA 3: done here. kNegate: a conversion of -x, of which it does not see the sign. kAccumulators: a
   store to shared memory from `count` accumulators, which it takes for registers: they are copied to some, from `to` on. kMultiply24: a product of 24 bits, of which it
   takes 32, and a sum: done here. Bits of `count`: signed; which part of either operand. kHighRegisters: operands from register 128 on (`low`, `high`, 0: none, and `to`) that the
   function finds in three others, from `from` on; with `count` the sign is turned as for kNegate. kProductF16: a product of matrices of halves, of which it takes those that are
   no normal numbers for 0: done here. kGetPc, kSetPc: s_getpc_b64 and s_setpc_b64, done here. */
enum { kUnknown, kRun, kSkip, kBarrier, kCopyFirst, kExchangeRows, kZeroFirst, kLowHalf, kHighHalf, kAtomic,
       kNegate, kAccumulators, kMultiply24, kHighRegisters, kProductF16, kGetPc, kSetPc };
enum { kAdd, kMaxSigned, kMaxUnsigned }; /* `count` of kAtomic */
enum { kAllEnded, kNeedsInstruction, kTooLong, kFault };
/* In a wave's scalar registers: the program counter, bytes of private memory a lane, and how many there are. */
enum { kPc = 256, kPrivate = 259, kRegisters = 260 };
#define ENDED 0xFFFFFFFFFFFFFFFFull

struct instruction {
  void (*run)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  uint8_t order[6]; /* which of a wave's buffers are its arguments */
  uint8_t bytes, kind;
  uint16_t to, from;        /* vector registers */
  uint16_t low, high;       /* scalars that hold selectors, 255: the literal; of kAtomic see there */
  uint32_t literal, lanes, count;
};

static void merge_halves(const struct instruction* i, const uint32_t* scalar, uint32_t* loaded, const uint32_t* old) {
  for (uint32_t lane = 0; lane < i->lanes; ++lane) {
    if (!(scalar[126 + lane / 32] >> lane % 32 & 1)) continue;
    loaded[lane] = i->kind == kLowHalf ? (old[lane] & 0xFFFF0000u) | (loaded[lane] & 0xFFFFu)
                                       : (old[lane] & 0xFFFFu) | loaded[lane] << 16;
  }
}

static void negate(const struct instruction* i, const uint32_t* scalar, uint32_t* values) {
  for (uint32_t lane = 0; lane < i->lanes; ++lane) {
    if (scalar[126 + lane / 32] >> lane % 32 & 1) values[lane] ^= 0x80000000u;
  }
}

/* Each lane takes, of the other row of 16, the lane that its four bits of the selectors name. */
static void exchange_rows(const struct instruction* i, const uint32_t* scalar, uint32_t* vector) {
  const uint32_t low = i->low == 255 ? i->literal : scalar[i->low], high = i->high == 255 ? i->literal : scalar[i->high];
  const uint64_t selectors = low | (uint64_t)high << 32;
  uint32_t old[64];
  memcpy(old, vector + i->from * i->lanes, i->lanes * 4);
  for (uint32_t lane = 0; lane < i->lanes; ++lane) {
    if (scalar[126 + lane / 32] >> lane % 32 & 1)
      vector[i->to * i->lanes + lane] = old[((lane & ~15u) ^ 16) + (selectors >> lane % 16 * 4 & 15)];
  }
}

/* `from`: the address or, with the scalars from `low` on, an offset; `high`: the operand; `literal`: an offset. */
static void atomic(const struct instruction* i, const uint32_t* scalar, uint32_t* vector) {
  for (uint32_t lane = 0; lane < i->lanes; ++lane) {
    if (!(scalar[126 + lane / 32] >> lane % 32 & 1)) continue;
    const uint32_t* v = vector + i->from * i->lanes + lane;
    const uint64_t base = i->low == 255 ? v[0] | (uint64_t)v[i->lanes] << 32
                                        : (scalar[i->low] | (uint64_t)scalar[i->low + 1] << 32) + v[0];
    uint32_t* p = (uint32_t*)(base + (int64_t)(int32_t)i->literal);
    const uint32_t old = *p, operand = vector[i->high * i->lanes + lane];
    const int below = i->count == kMaxSigned ? (int32_t)old < (int32_t)operand : old < operand;
    *p = i->count == kAdd ? old + operand : below ? operand : old;
    vector[i->to * i->lanes + lane] = old;
  }
}

/* An operand by its number in an instruction: constants stand among the scalars. */
static uint32_t operand(const struct instruction* i, uint32_t number, const uint32_t* scalar, const uint32_t* vector,
                        uint32_t lane) {
  return number >= 256 ? vector[(number - 256) * i->lanes + lane] : number == 255 ? i->literal : scalar[number];
}
/* What of an operand counts: all of it (6), a half (4, 5) or a byte (0 .. 3). */
static uint32_t selected(uint32_t value, uint32_t select) {
  return select == 6 ? value : select >= 4 ? value >> (select - 4) * 16 & 0xFFFF : value >> select * 8 & 0xFF;
}
static void multiply_24(const struct instruction* i, const uint32_t* scalar, uint32_t* vector) {
  for (uint32_t lane = 0; lane < i->lanes; ++lane) {
    if (!(scalar[126 + lane / 32] >> lane % 32 & 1)) continue;
    const uint32_t a = selected(operand(i, i->from, scalar, vector, lane), i->count >> 1 & 7) << 8;
    const uint32_t b = selected(operand(i, i->low, scalar, vector, lane), i->count >> 4 & 7) << 8;
    const uint32_t product = i->count & 1 ? (uint32_t)((int64_t)((int32_t)a >> 8) * ((int32_t)b >> 8)) : (a >> 8) * (b >> 8);
    vector[i->to * i->lanes + lane] = product + operand(i, i->high, scalar, vector, lane);
  }
}

static float half_at(const uint32_t* registers, uint32_t lane, int k) {
  const uint16_t bits = (uint16_t)(registers[k / 2 * 64 + lane] >> k % 2 * 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                     : exponent == 0 ? ldexpf((float)fraction, -24)
                                     : ldexpf((float)(1024 + fraction), exponent - 25);
  return bits >> 15 ? -size : size;
}
/* v_mfma_f32_16x16x16_f16: lane l has four k, from 4 (l / 16) on, of row or column l % 16, and rows 4 (l / 16) + i of the
   result's column l % 16. `count`: whether the result (and C), A and B are accumulators. */
static void product_f16(const struct instruction* i, const uint32_t* scalar, uint32_t* vector, uint32_t* accumulators) {
  const uint32_t* a = (i->count & 2 ? accumulators : vector) + (i->from - 256) * 64;
  const uint32_t* b = (i->count & 4 ? accumulators : vector) + (i->low - 256) * 64;
  uint32_t* file = i->count & 1 ? accumulators : vector;
  float result[4][64];
  for (uint32_t lane = 0; lane < 64; ++lane) {
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t c = i->high >= 256 ? file[(i->high - 256 + r) * 64 + lane] : scalar[i->high];
      float sum;
      memcpy(&sum, &c, 4);
      for (uint32_t k = 0; k < 16; ++k)
        sum += half_at(a, k / 4 * 16 + lane / 16 * 4 + r, (int)(k % 4)) * half_at(b, k / 4 * 16 + lane % 16, (int)(k % 4));
      result[r][lane] = sum;
    }
  }
  memcpy(file + i->to * 64, result, sizeof result);
}

struct wave {
  uint64_t buffers[6]; /* scalar registers, vector registers, memory from 0, shared memory, private memory, accumulators */
  uint64_t ended;
};

struct block {
  const struct instruction* table; /* one a 4 bytes of code */
  uint64_t code, words;
  struct wave* waves;
  int32_t count, current;
  uint64_t pc;       /* of the instruction that is needed */
  uint64_t executed; /* instructions, since the start */
  uint64_t limit;
  uint64_t address;  /* of a fault */
};

/* An access to what is not memory: pc, current and address of the block say which. */
static sigjmp_buf fault;
static volatile uint64_t fault_address;
static void on_fault(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)context;
  fault_address = (uint64_t)info->si_addr;
  siglongjmp(fault, 1);
}

static int run_waves(struct block* b) {
  for (;;) {
    int ended = 1;
    for (; b->current < b->count; ++b->current) {
      struct wave* w = &b->waves[b->current];
      if (w->ended) continue;
      uint32_t* scalar = (uint32_t*)w->buffers[0];
      for (;;) {
        const uint64_t pc = scalar[kPc] | (uint64_t)scalar[kPc + 1] << 32;
        if (pc == ENDED) {
          w->ended = 1;
          break;
        }
        b->pc = pc;
        const uint64_t word = (pc - b->code) / 4;
        if (word >= b->words || b->table[word].kind == kUnknown) return kNeedsInstruction;
        if (++b->executed > b->limit) return kTooLong;
        const struct instruction* i = &b->table[word];
        uint32_t* vector = (uint32_t*)w->buffers[1];
        if (i->kind == kZeroFirst) memset(vector + i->to * i->lanes, 0, i->count * i->lanes * 4);
        if (i->kind == kExchangeRows) exchange_rows(i, scalar, vector);
        if (i->kind == kAtomic) atomic(i, scalar, vector);
        if (i->kind == kMultiply24) multiply_24(i, scalar, vector);
        if (i->kind == kProductF16) product_f16(i, scalar, vector, (uint32_t*)w->buffers[5]);
        if (i->kind == kSetPc) {
          memmove(scalar + kPc, scalar + i->from, 8);
          continue;
        }
        if (i->kind == kGetPc) {
          const uint64_t behind = pc + i->bytes;
          memcpy(scalar + i->to, &behind, 8);
        }
        if (i->kind == kGetPc || i->kind == kSkip || i->kind == kExchangeRows || i->kind == kAtomic || i->kind == kMultiply24 ||
            i->kind == kProductF16) {
          const uint64_t next = pc + i->bytes;
          scalar[kPc] = (uint32_t)next;
          scalar[kPc + 1] = (uint32_t)(next >> 32);
          continue;
        }
        uint32_t old[64], kept[4 * 64];
        const int half = i->kind == kLowHalf || i->kind == kHighHalf;
        if (i->kind == kCopyFirst) {
          memcpy(kept, vector + i->to * i->lanes, i->lanes * 4);
          memcpy(vector + i->to * i->lanes, vector + i->from * i->lanes, i->lanes * 4);
        }
        if (i->kind == kAccumulators) {
          memcpy(kept, vector + i->to * i->lanes, i->count * i->lanes * 4);
          memcpy(vector + i->to * i->lanes, (uint32_t*)w->buffers[5] + i->from * i->lanes, i->count * i->lanes * 4);
        }
        if (i->kind == kHighRegisters) {
          uint32_t* spare = vector + i->from * i->lanes;
          memcpy(kept, spare, 3 * i->lanes * 4);
          if (i->low) memcpy(spare, vector + i->low * i->lanes, i->lanes * 4);
          if (i->high) memcpy(spare + i->lanes, vector + i->high * i->lanes, i->lanes * 4);
          if (i->to >= 128) memcpy(spare + 2 * i->lanes, vector + i->to * i->lanes, i->lanes * 4);
        }
        if (half) memcpy(old, vector + i->to * i->lanes, i->lanes * 4);
        i->run(w->buffers[i->order[0]], w->buffers[i->order[1]], w->buffers[i->order[2]], w->buffers[i->order[3]],
               w->buffers[i->order[4]], w->buffers[i->order[5]]);
        if (i->kind == kCopyFirst) memcpy(vector + i->to * i->lanes, kept, i->lanes * 4);
        if (i->kind == kAccumulators) memcpy(vector + i->to * i->lanes, kept, i->count * i->lanes * 4);
        if (i->kind == kHighRegisters) {
          uint32_t* spare = vector + i->from * i->lanes;
          if (i->to >= 128) memcpy(vector + i->to * i->lanes, spare + 2 * i->lanes, i->lanes * 4);
          memcpy(spare, kept, 3 * i->lanes * 4);
          if (i->count) negate(i, scalar, vector + i->to * i->lanes);
        }
        if (i->kind == kNegate) negate(i, scalar, vector + i->to * i->lanes);
        if (half) merge_halves(i, scalar, vector + i->to * i->lanes, old);
        if (i->kind == kBarrier) {
          ended = 0;
          break;
        }
      }
    }
    b->current = 0;
    for (int i = 0; i < b->count; ++i) ended &= (int)b->waves[i].ended;
    if (ended) return kAllEnded;
  }
}

int run_block(struct block* b) {
  struct sigaction action = {0}, old_segv, old_bus;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  const int end = sigsetjmp(fault, 1) == 0 ? run_waves(b) : kFault;
  if (end == kFault) b->address = fault_address;
  sigaction(SIGSEGV, &old_segv, 0);
  sigaction(SIGBUS, &old_bus, 0);
  return end;
}

/* A wave's registers before its first instruction: constants where instructions find them, all else undefined (a NaN),
   the program counter, the user's scalars, lane numbers. `packed` is y and z of a thread's index, which kernels here
   do not have. */
void start_wave(struct wave* w, uint64_t entry, const uint32_t* user, int user_count, int first_thread, int lanes,
                int wave_size, int private_bytes) {
  static const uint32_t floats[9] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                     0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
  uint32_t* s = (uint32_t*)w->buffers[0];
  uint32_t* v = (uint32_t*)w->buffers[1];
  uint32_t* a = (uint32_t*)w->buffers[5];
  const uint32_t undefined = 0x7fc0dead;
  for (int i = 0; i < 128; ++i) s[i] = undefined;
  memset(s + 128, 0, (kRegisters - 128) * sizeof *s);
  for (int i = 0; i <= 64; ++i) s[128 + i] = (uint32_t)i;
  for (int i = 0; i < 16; ++i) s[193 + i] = (uint32_t)-(i + 1);
  for (int i = 0; i < 9; ++i) s[240 + i] = floats[i];
  for (int i = 0; i < 256 * wave_size; ++i) v[i] = a[i] = undefined;
  for (int i = 0; i < lanes; ++i) v[i] = (uint32_t)(first_thread + i);
  for (int i = 0; i < user_count; ++i) s[i] = user[i];
  s[124] = 0; /* null on RDNA, m0 on CDNA */
  s[126] = lanes >= 32 ? 0xFFFFFFFFu : (1u << lanes) - 1;
  s[127] = lanes >= 64 ? 0xFFFFFFFFu : lanes > 32 ? (1u << (lanes - 32)) - 1 : 0;
  s[kPrivate] = (uint32_t)private_bytes;
  s[kPc] = (uint32_t)entry;
  s[kPc + 1] = (uint32_t)(entry >> 32);
  w->ended = 0;
}
