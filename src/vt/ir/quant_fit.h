// Scales (and minimums) of blocks of values, as the encoders need them: least squares over the
// codes of a few dozen trial scales, where large values weigh more than small ones. What the
// weights are and which scales are tried follows llama.cpp's quantisers without an importance
// matrix, so that files made here are as good as its own.
#pragma once

#include <algorithm>
#include <cmath>

namespace vt::ir {

// The nearest integer, ties to even. REQUIRES: |x| < 2^22. (Adding 1.5 * 2^23 leaves no bits for a
// fraction; unlike calls of the C library this works on vectors.)
inline float Nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

// The nearest code in lo..hi. NaN becomes lo: a block with NaN is lost anyway, but must not be
// undefined behaviour.
inline float CodeOf(float x, float lo, float hi) { return Nearest(x > lo ? std::min(x, hi) : lo); }

inline float Inverse(float x) { return x == 0 ? 0 : 1 / x; }

// The value of largest magnitude, with its sign.
float Extreme(const float* x, int n);

// Fits take up to 32 values, a multiple of eight. For codes lo..hi times one scale, lo < 0: the
// scale of least error weighted by x^2. Tries nineteen scales that give the extreme value a code
// near lo.
float FitScale(const float* x, int n, int lo, int hi);

// The same, from one scale on: codes move one at a time while that lowers the error. For so few
// codes this finds more than other scales would.
float FitCodes(const float* x, int n, int lo, int hi);

struct Affine {
  float scale = 0, min = 0;  // x = scale * q - min; min >= 0, since the formats subtract it
};
// What FitAffine tries and how it chooses.
struct AffineSearch {
  int top;      // codes 0..top
  float first;  // of the trials: codes span top + first, top + first + 0.1, ...
  int trials;
  bool absolute = false;  // choose by weighted absolute error, not by its square
};
Affine FitAffine(const float* x, const float* weights, int n, const AffineSearch& search);

// Index of the IQ4 value that is nearest to x.
int NearestIQ4(float x);

// The scale of 32 values for the codes of the IQ4 table, weighted by x^2.
float FitIQ4(const float* x);

}  // namespace vt::ir
