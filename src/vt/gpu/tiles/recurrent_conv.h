// A depthwise filter along each request's tokens. Blocks of the first kind have a request's first
// kConvTokens tokens, which alone may need its kept rows, and replace these; the others have pieces
// of the step's tokens, of which they leave those out.
#pragma once

#include "vt/gpu/args_recurrent.h"
#include "vt/gpu/tiles/common.h"
#include "vt/gpu/tiles/request_of.h"

namespace vt::gpu {

GPU_FN const float* SlotToRead(const RecurrentState& s, int request) {
  const int slot = s.read[request];
  return slot >= 0 && slot < s.slots ? s.data + slot * s.slot_floats : nullptr;
}
GPU_FN float* SlotToWrite(const RecurrentState& s, int request) {
  const int slot = s.write[request];
  return slot >= 0 && slot < s.slots ? s.data + slot * s.slot_floats : nullptr;
}

// Row `at` of a request, whose rows below 0 are those kept from before.
template <class T>
GPU_FN float ConvRow(const ConvArgs& a, const float* kept, int first, int at, int channel) {
  if (at >= 0) return ::gpu::to_float(RowOf<T>(a.x, first + at)[channel]);
  const int row = a.width - 1 + at;
  return kept != nullptr && row >= 0 ? kept[row * a.channels + channel] : 0.0f;
}

template <class T>
GPU_FN float ConvSum(const ConvArgs& a, const float* kept, int first, int at, int channel) {
  float sum = 0;
  for (int j = 0; j < a.width; ++j)
    sum += a.w[channel * a.width + j] * ConvRow<T>(a, kept, first, at - (a.width - 1) + j, channel);
  return sum;
}

// The same for tokens [from, to) of the step, one after the other: the filter and the rows that it
// covers stay in registers.
template <class T, int kWidth>
GPU_FN void ConvPiece(const ConvArgs& a, int requests, int from, int to, int channel) {
  float w[kWidth], row[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) w[j] = a.w[channel * kWidth + j];
  int request = RequestOf(a.state.query_start, requests, from);
  int first = a.state.query_start[request], end = a.state.query_start[request + 1];
  bool held = false;  // whether row has what stands before t
  for (int t = from; t < to; ++t) {
    while (t >= end && request + 1 < requests) {
      ++request;
      first = end;
      end = a.state.query_start[request + 1];
      held = false;
    }
    if (t - first < kConvTokens) continue;
    if (!held) {
#pragma unroll
      for (int j = 1; j < kWidth; ++j)
        row[j] = ::gpu::to_float(RowOf<T>(a.x, t - kWidth + j)[channel]);
      held = true;
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j + 1 < kWidth; ++j) {
      row[j] = row[j + 1];
      sum += w[j] * row[j];
    }
    row[kWidth - 1] = ::gpu::to_float(RowOf<T>(a.x, t)[channel]);
    RowOf<T>(a.y, t)[channel] = ::gpu::from_float<T>(sum + w[kWidth - 1] * row[kWidth - 1]);
  }
}

template <class T>
GPU_FN void ConvRows(const ConvArgs& a) {
  const int channel = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
  const int requests = a.header->requests, tokens = a.header->tokens;
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  if (channel >= a.channels) return;
  if (::gpu::block_y() >= a.most_requests) {
    const int from = (::gpu::block_y() - a.most_requests) * kConvTokens;
    const int to = ::gpu::min(from + kConvTokens, tokens);
    if (a.width == 4 && from < to) return ConvPiece<T, 4>(a, requests, from, to, channel);
    for (int t = from; t < to; ++t) {
      const int first = a.state.query_start[RequestOf(a.state.query_start, requests, t)];
      if (t - first < kConvTokens) continue;
      RowOf<T>(a.y, t)[channel] =
          ::gpu::from_float<T>(ConvSum<T>(a, nullptr, first, t - first, channel));
    }
    return;
  }
  const int request = ::gpu::block_y();
  if (request >= requests) return;
  const int first = a.state.query_start[request];
  const int count = ::gpu::min(a.state.query_start[request + 1], tokens) - first;
  const float* kept = SlotToRead(a.state, request);
  for (int t = 0; t < ::gpu::min(count, kConvTokens); ++t) {
    RowOf<T>(a.y, first + t)[channel] =
        ::gpu::from_float<T>(ConvSum<T>(a, kept, first, t, channel));
  }
  // Oldest first: what it reads of the same slot lies further on.
  float* next = SlotToWrite(a.state, request);
  if (next == nullptr) return;
  for (int j = 0; j < a.width - 1; ++j) {
    next[j * a.channels + channel] = ConvRow<T>(a, kept, first, count - (a.width - 1) + j, channel);
  }
}

}  // namespace vt::gpu
