// ThinMma<T> of gpu.h, T = bf16 or f16: products of tall matrices that are read once, from global
// memory into registers, with thin ones of eight columns. CUDA's and the emulated device's: each
// gives mma_16816(c, a0..a3, b0, b1, T{}), of 16 x 16 by 16 x 8 values, and turn8(w), the
// transposed of 8 x 8 halves. Lane 4 g + t of 32 holds row g and columns 2 t, 2 t + 1 of those;
// lanes of a wider wave hold the same once more.
#pragma once

namespace gpu {

template <class T>
struct ThinMma {
  static constexpr int kM = 16, kN = 8;
  // C[kM x kN]: value i of a lane is of row row(i) and column column(i % 2).
  struct C {
    float v[4];
  };
  // B[kN x 16], as turned() makes it of a C.
  struct B {
    uint32_t r[2];
  };

  static GPU_FN int row(int i) { return G() + i / 2 * 8; }
  static GPU_FN int column(int i) { return 2 * Quad() + i; }
  // Of the lanes that have a column, the one with its first row.
  static GPU_FN bool leads() { return lane() < 4; }
  static GPU_FN C zero() { return {{0, 0, 0, 0}}; }
  // Over all rows of this lane's two columns.
  template <class F>
  static GPU_FN void over_rows(float (&v)[2], F f) {
#pragma unroll
    for (int m = 4; m < 32; m *= 2) {
#pragma unroll
      for (int j = 0; j < 2; ++j) v[j] = f(v[j], shuffle_xor(v[j], m));
    }
  }

  // C += A B^T over 32 values of k. Of A a lane has its row(2 i)'s values from k_at() on, eight of
  // them; of B those of row thin_row().
  static GPU_FN int k_at() { return 8 * Quad(); }
  static GPU_FN int thin_row() { return G(); }
  static GPU_FN void mma(C& c, const Pack<uint32_t>& a0, const Pack<uint32_t>& a1,
                         const Pack<uint32_t>& b) {
    mma_16816(c.v, a0.v[0], a1.v[0], a0.v[1], a1.v[1], b.v[0], b.v[1], T{});
    mma_16816(c.v, a0.v[2], a1.v[2], a0.v[3], a1.v[3], b.v[2], b.v[3], T{});
  }

  // B[n][k] = C[k][n], rounded to T.
  static GPU_FN B turned(const C& c) {
    return {{turn8(pack2(c.v[0], c.v[1], T{})), turn8(pack2(c.v[2], c.v[3], T{}))}};
  }
  // The same product of 64 rows of an A that stands in memory across: k by k. A lane has, of four
  // k's across_k(i), the eight rows from across_at() on; value i of its c[m] is of row
  // across_at() + 2 m + i / 2.
  static GPU_FN int across_k(int i) { return 2 * Quad() + i % 2 + i / 2 * 8; }
  static GPU_FN int across_at() { return 8 * G(); }
  static GPU_FN void mma_across(C (&c)[4], const Pack<uint32_t> (&a)[4], const B& b) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const uint32_t w0 = a[0].v[m], w1 = a[1].v[m], w2 = a[2].v[m], w3 = a[3].v[m];
      mma_16816(c[m].v, Low(w0, w1), High(w0, w1), Low(w2, w3), High(w2, w3), b.r[0], b.r[1], T{});
    }
  }

 private:
  static GPU_FN uint32_t Low(uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; }
  static GPU_FN uint32_t High(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
  static GPU_FN int G() { return lane() % 32 / 4; }
  static GPU_FN int Quad() { return lane() % 4; }
};

}  // namespace gpu
