// Line plots as SVG text, for pages without scripts. Colours come from the page's style sheet
// (classes s0, s1, .. of series), so that they follow light and dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace apps::bench {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  std::vector<std::string> labels = {};  // beside each point; empty: no marks
};

struct Plot {
  std::string title, x, y;  // axes with units
  std::vector<Series> series;
  double y_max = 0;  // 0: the largest value
};

// A <figure>.
std::string Draw(const Plot& plot);

inline constexpr int kSeriesColours = 8;

// Text for HTML.
std::string Escaped(const std::string& text);

// A step from 0 to 1: the share of samples at or below each value, at most `points` of them.
std::vector<std::pair<double, double>> Cumulative(std::vector<double> samples, size_t points);

// Round numbers that cover [0, max], between 3 and 8 of them.
std::vector<double> Ticks(double max);

}  // namespace apps::bench
