#include "vllm/audio/cut.h"

#include <algorithm>
#include <limits>

namespace vllm::audio {

std::vector<int64_t> CutWhereQuiet(std::span<const float> samples, int64_t most) {
  const auto count = static_cast<int64_t>(samples.size());
  // Of 30 s: the quietest tenth of a second in the last three, about as long as a pause for breath.
  const int64_t reach = most / 10, window = std::max<int64_t>(1, reach / 30);
  std::vector<int64_t> ends;
  int64_t begin = 0;
  while (count - begin > most) {
    int64_t cut = begin + most;
    double least = std::numeric_limits<double>::infinity();
    // From behind: of places that are as quiet as each other the last, for the longest piece.
    for (int64_t end = begin + most; end - window >= begin + most - reach; end -= window) {
      double energy = 0;
      for (int64_t i = end - window; i < end; ++i) {
        const double x = samples[static_cast<size_t>(i)];
        energy += x * x;
      }
      if (energy < least) {
        least = energy;
        cut = end - window / 2;
      }
    }
    ends.push_back(begin = cut);
  }
  ends.push_back(count);
  return ends;
}

}  // namespace vllm::audio
