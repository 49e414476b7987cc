#include "apps/bench/report.h"

#include <cmath>

#include "apps/bench/plot.h"
#include "base/strings.h"

namespace apps::bench {
namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1c1e21; --soft: #61666d; --line: #e3e4e6;
  --c0: #0b62c4; --c1: #c2410c; --c2: #0f7b4f; --c3: #8a3ffc; --c4: #a16207; --c5: #be185d; --c6: #0e7490; --c7: #52525b; }
@media (prefers-color-scheme: dark) {
  :root { --page: #141517; --card: #1c1e21; --ink: #e8e9eb; --soft: #a2a7ae; --line: #34373c;
    --c0: #6aaefc; --c1: #ff9559; --c2: #4cc38a; --c3: #bb9af7; --c4: #e5b454; --c5: #f583b4; --c6: #5cc8dc; --c7: #b4b7bd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 16px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 8px 0 2px; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 26px 0 10px; }
p { margin: 4px 0; color: var(--soft); overflow-wrap: anywhere; }
pre { margin: 8px 0; padding: 10px; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 10px; margin-top: 14px; }
.tiles div, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 12px; margin: 0; }
.tiles b { display: block; font-size: 22px; } .tiles span, figcaption span { color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 12px; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 13px; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg path { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; } svg circle { fill: var(--c); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: 13px; color: var(--soft); padding-top: 6px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 5px; background: var(--c); vertical-align: -1px; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; font-size: 13px; } tr:last-child td { border-bottom: 0; }
td:first-child, th:first-child { text-align: left; } .bad { color: var(--c1); font-weight: 600; }
)css";

std::string Name(const Point& p) {
  return p.concurrency > 0 ? fmt::format("{} at once", p.concurrency) : "no limit";
}

std::string Tile(const std::string& value, const std::string& what) {
  return fmt::format("<div><b>{}</b><span>{}</span></div>\n", value, what);
}

// Of the point with the highest output rate.
std::string Tiles(const Results& results) {
  const Point* best = &results.points[0];
  for (const Point& p : results.points) {
    if (p.shown().output_rate > best->shown().output_rate) best = &p;
  }
  const Metrics& m = best->shown();
  std::string out = "<div class=\"tiles\">\n";
  out += Tile(fmt::format("{:.1f}", m.output_rate), "output tokens a second, " + Name(*best));
  out += Tile(fmt::format("{:.1f}", m.total_rate), "tokens a second in all");
  out += Tile(fmt::format("{:.2f}", m.request_rate), "requests a second");
  out += Tile(fmt::format("{:.1f} ms", Percentile(m.ttft, 50) * 1e3), "to the first token, median");
  out += Tile(fmt::format("{:.2f} ms", Percentile(m.tpot, 50) * 1e3), "a token after, median");
  out += Tile(fmt::format("{} of {}", m.completed, m.completed + m.failed), "requests succeeded");
  return out + "</div>\n";
}

std::string Row(const std::string& cell, const std::vector<std::string>& cells) {
  std::string out = "<tr>";
  for (const std::string& c : cells) out += "<" + cell + ">" + c + "</" + cell + ">";
  return out + "</tr>\n";
}

std::string Numbers(const Results& results) {
  std::string out = "<h2>Numbers</h2>\n<div class=\"scroll\"><table>\n";
  out += Row("th", {"Concurrency", "Requests", "Seconds", "Requests/s", "Output tok/s",
                    "min .. max of runs", "All tok/s", "Cached tokens", "Peak at once"});
  for (const Point& p : results.points) {
    const Metrics& m = p.shown();
    const Spread s = p.Over(&Metrics::output_rate);
    out += Row("td", {Name(p),
                      m.failed == 0 ? std::to_string(m.completed)
                                    : fmt::format("{} <span class=\"bad\">{} failed</span>",
                                                  m.completed, m.failed),
                      fmt::format("{:.2f}", m.seconds), fmt::format("{:.2f}", m.request_rate),
                      fmt::format("{:.1f}", m.output_rate),
                      fmt::format("{:.1f} .. {:.1f} of {}", s.min, s.max, p.runs.size()),
                      fmt::format("{:.1f}", m.total_rate), std::to_string(m.cached_tokens),
                      std::to_string(m.peak_concurrency)});
  }
  out += "</table></div>\n<h2>Latency in milliseconds</h2>\n<div class=\"scroll\"><table>\n";
  out += Row("th", {"Concurrency", "", "Mean", "Median", "P99", "Deviation"});
  for (const Point& p : results.points) {
    const Metrics& m = p.shown();
    const std::pair<const char*, const std::vector<double>*> rows[] = {
        {"TTFT", &m.ttft}, {"TPOT", &m.tpot}, {"ITL", &m.itl}, {"E2EL", &m.e2el}};
    for (const auto& [name, samples] : rows) {
      const Distribution d = DistributionOf(*samples);
      out +=
          Row("td", {name == rows[0].first ? Name(p) : "", name,
                     fmt::format("{:.2f}", d.mean * 1e3), fmt::format("{:.2f}", d.median * 1e3),
                     fmt::format("{:.2f}", d.p99 * 1e3), fmt::format("{:.2f}", d.deviation * 1e3)});
    }
  }
  return out + "</table></div>\n";
}

std::string Latencies(const Results& results) {
  const std::pair<const char*, std::vector<double> Metrics::*> kinds[] = {
      {"Time to the first token (TTFT)", &Metrics::ttft},
      {"Time a token after the first (TPOT)", &Metrics::tpot},
      {results.over_http ? "Time between chunks (ITL)" : "Time between tokens (ITL)",
       &Metrics::itl},
      {"Time of a whole request (E2EL)", &Metrics::e2el}};
  std::string out = "<h2>Latency: share of samples at or below</h2>\n<div class=\"plots\">\n";
  for (const auto& [title, samples] : kinds) {
    Plot plot{.title = title, .x = "milliseconds", .y = "% of samples", .series = {}, .y_max = 100};
    for (const Point& p : results.points) {
      Series s{.name = Name(p), .points = Cumulative(p.shown().*samples, 200)};
      for (auto& [x, y] : s.points) {
        x *= 1e3;
        y *= 100;
      }
      plot.series.push_back(std::move(s));
    }
    out += Draw(plot);
  }
  return out + "</div>\n";
}

std::string OverTime(const Results& results) {
  constexpr int kBins = 60;
  Plot plot{.title = "Output over time",
            .x = "seconds since the run began",
            .y = "tokens a second",
            .series = {}};
  for (const Point& p : results.points) {
    plot.series.push_back({.name = Name(p), .points = OutputOverTime(p.runs[p.middle], kBins)});
  }
  return "<h2>Throughput</h2>\n<div class=\"plots\">\n" + Draw(plot);
}

std::string SweepPlots(const Results& results) {
  if (results.points.size() < 2) return "";
  Series latency{.name = "TPOT", .points = {}}, whole{.name = "E2EL", .points = {}};
  Series rate{.name = "output", .points = {}};
  for (const Point& p : results.points) {
    const Metrics& m = p.shown();
    const auto count = static_cast<double>(p.concurrency > 0 ? p.concurrency : m.peak_concurrency);
    latency.points.emplace_back(m.output_rate, Percentile(m.tpot, 50) * 1e3);
    whole.points.emplace_back(m.output_rate, Percentile(m.e2el, 50) * 1e3);
    rate.points.emplace_back(count, m.output_rate);
    for (Series* s : {&latency, &whole, &rate}) s->labels.push_back(fmt::format("{}", count));
  }
  const std::string x = "output tokens a second";
  return Draw({.title = "Latency a token by throughput",
               .x = x,
               .y = "median TPOT in ms, marks: concurrency",
               .series = {latency}}) +
         Draw({.title = "Latency a request by throughput",
               .x = x,
               .y = "median E2EL in ms, marks: concurrency",
               .series = {whole}}) +
         Draw({.title = "Throughput by concurrency",
               .x = "requests at once",
               .y = "output tokens a second",
               .series = {rate}});
}

}  // namespace

std::string Report(const Results& results) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      Escaped("vllm-bench: " + results.model) + "</title>\n<style>" + kStyle +
      "</style>\n</head>\n<body>\n";
  out += "<h1>" + Escaped(results.model) + "</h1>\n";
  out += "<p>" + Escaped(results.target) + "</p>\n<p>" + Escaped(results.machine) + " · " +
         Escaped(results.date) + "</p>\n";
  std::string settings;
  for (const auto& [name, value] : results.settings) {
    settings += (settings.empty() ? "" : " · ") + name + " " + value;
  }
  out += "<p>" + Escaped(settings) + "</p>\n<pre>" + Escaped(results.command) + "</pre>\n";
  for (const std::string& e : results.Errors()) {
    out += "<p class=\"bad\">" + Escaped(e) + "</p>\n";
  }
  out += Tiles(results) + OverTime(results) + SweepPlots(results) + "</div>\n";
  out += Latencies(results) + Numbers(results);
  return out + "</body>\n</html>\n";
}

}  // namespace apps::bench
