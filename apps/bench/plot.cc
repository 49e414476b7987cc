#include "apps/bench/plot.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

namespace apps::bench {
namespace {

// In units of the view box. Narrow, so that text stays readable when a phone scales it down.
constexpr double kWidth = 420, kHeight = 270, kLeft = 52, kRight = 14, kTop = 12, kBottom = 42;

class Frame {
 public:
  explicit Frame(const Plot& plot) {
    for (const Series& s : plot.series) {
      for (const auto& [x, y] : s.points) {
        x_max_ = std::max(x_max_, x);
        y_max_ = std::max(y_max_, y);
      }
    }
    x_ticks_ = Ticks(x_max_);
    y_ticks_ = Ticks(plot.y_max > 0 ? plot.y_max : y_max_);
    y_max_ = plot.y_max > 0 ? plot.y_max : y_ticks_.back();
    x_max_ = std::max(x_max_ * 1.02, 1e-9);
  }
  double X(double x) const { return kLeft + x / x_max_ * (kWidth - kLeft - kRight); }
  double Y(double y) const { return kHeight - kBottom - y / y_max_ * (kHeight - kTop - kBottom); }

  std::string Axes(const Plot& plot) const {
    std::string out;
    for (const double t : y_ticks_) {
      if (t > y_max_ * 1.001) continue;
      out += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                         R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)",
                         kLeft, kWidth - kRight, Y(t), Y(t), kLeft - 6, Y(t) + 4, Number(t));
    }
    for (const double t : x_ticks_) {
      if (t > x_max_) continue;
      out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", X(t),
                         kHeight - kBottom + 16, Number(t));
    }
    out += fmt::format(R"(<line class="axis" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                       R"(<text x="{3:.1f}" y="{4:.1f}" text-anchor="middle">{5}</text>)",
                       kLeft, kWidth - kRight, Y(0), (kLeft + kWidth - kRight) / 2, kHeight - 8,
                       Escaped(plot.x));
    return out;
  }

 private:
  static std::string Number(double v) {
    if (v >= 10000) return fmt::format("{:g}k", v / 1000);
    return fmt::format("{:g}", v);
  }
  double x_max_ = 0, y_max_ = 0;
  std::vector<double> x_ticks_, y_ticks_;
};

std::string Line(const Series& s, size_t colour, const Frame& frame) {
  std::string path;
  for (const auto& [x, y] : s.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", frame.X(x), frame.Y(y));
  }
  std::string out = fmt::format(R"(<path class="s{}" d="{}"><title>{}</title></path>)", colour,
                                path, Escaped(s.name));
  for (size_t i = 0; i < s.labels.size() && i < s.points.size(); ++i) {
    const auto [x, y] = s.points[i];
    // The last label stands before its point, or it would leave the picture.
    const bool before = i + 1 == s.points.size() && i > 0;
    out += fmt::format(
        R"(<circle class="s{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}: {:.4g}, {:.4g}</title></circle>)"
        R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)",
        colour, frame.X(x), frame.Y(y), Escaped(s.labels[i]), x, y, frame.X(x) + (before ? -7 : 7),
        frame.Y(y) - 7, before ? "end" : "start", Escaped(s.labels[i]));
  }
  return out;
}

}  // namespace

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> Ticks(double max) {
  if (!(max > 0) || std::isinf(max)) return {0, 1};
  const double power = std::pow(10, std::floor(std::log10(max)));
  double step = power;
  for (const double share : {0.2, 0.25, 0.5, 1.0}) {
    step = power * share;
    if (max / step <= 5.5) break;
  }
  if (max / step > 5.5) step = power * 2;
  std::vector<double> ticks;
  for (int i = 0; ticks.empty() || ticks.back() < max * 0.999; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<std::pair<double, double>> Cumulative(std::vector<double> samples, size_t points) {
  if (samples.empty() || points == 0) return {};
  std::sort(samples.begin(), samples.end());
  std::vector<std::pair<double, double>> out = {{samples.front(), 0.0}};
  const size_t n = samples.size(), count = std::min(points, n);
  for (size_t i = 1; i <= count; ++i) {
    const size_t last = i * n / count - 1;
    if (count == n) out.emplace_back(samples[last], out.back().second);  // a step
    out.emplace_back(samples[last], static_cast<double>(last + 1) / static_cast<double>(n));
  }
  return out;
}

std::string Draw(const Plot& plot) {
  const Frame frame(plot);
  std::string out =
      fmt::format(R"(<figure><figcaption><b>{}</b> <span>{}</span></figcaption>)"
                  R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)",
                  Escaped(plot.title), Escaped(plot.y), kWidth, kHeight, Escaped(plot.title));
  out += frame.Axes(plot);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    out += Line(plot.series[i], i % kSeriesColours, frame);
  }
  out += "</svg>";
  if (plot.series.size() > 1) {
    out += R"(<div class="legend">)";
    for (size_t i = 0; i < plot.series.size(); ++i) {
      out += fmt::format(R"(<span><i class="s{}"></i>{}</span>)", i % kSeriesColours,
                         Escaped(plot.series[i].name));
    }
    out += "</div>";
  }
  return out + "</figure>\n";
}

}  // namespace apps::bench
