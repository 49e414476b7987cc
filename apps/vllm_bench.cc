// vllm-bench micro: prefill and decode rates of one request, mean and deviation over repeats.
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cmath>

#include "apps/model_flags.h"
#include "base/json.h"
#include "base/strings.h"
#include "vllm/engine/llm.h"

namespace {

constexpr const char* kName = "vllm-bench";
using vllm::engine::Llm;
using vllm::engine::LoadOptions;

struct MicroFlags {
  LoadOptions options;  // of every model
  std::vector<std::string> models;
  int64_t prompt = 512, generate = 128;
  int repeat = 5;
  std::string output = "md";
};

struct Line {
  std::string model, device, test;
  std::vector<double> rates;  // tokens a second, one a repeat
};

double Mean(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

double Deviation(const std::vector<double>& v) {
  if (v.size() < 2) return 0;
  const double mean = Mean(v);
  double sum = 0;
  for (const double x : v) sum += (x - mean) * (x - mean);
  return std::sqrt(sum / static_cast<double>(v.size() - 1));
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

// Arbitrary but fixed ids, spread over the vocabulary.
std::vector<int32_t> Ids(int64_t count, int64_t vocab, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>((i * 7919 + salt * 104729 + 17) % vocab));
  return ids;
}

base::Result<std::vector<Line>> Measure(const MicroFlags& f, const std::string& model) {
  LoadOptions options = f.options;
  options.model = model;
  if (options.max_model_len == 0)
    options.max_model_len = std::max<int64_t>(f.prompt, f.generate) + 1;
  options.enable_prefix_caching = false;  // every repeat computes its prompt
  base::Result<std::unique_ptr<Llm>> loaded = Llm::Load(options);
  if (!loaded) return loaded.error();
  Llm& llm = **loaded;
  const int64_t vocab = llm.runner().vocab_size();
  const std::string device = llm.backend().TargetName();
  std::vector<Line> lines;
  const auto run = [&](const std::string& test, int64_t prompt, int64_t output) -> base::Status {
    Line line{model, device, test, {}};
    for (int r = -1; r < f.repeat; ++r) {  // the first warms up
      const vllm::engine::SamplingParams greedy = {
          .temperature = 0, .max_tokens = output, .ignore_eos = true};
      const auto done = llm.Generate(Ids(prompt, vocab, r + 1), greedy, {});
      if (!done) return done.error();
      if (r < 0) continue;
      line.rates.push_back(output > 1 ? static_cast<double>(output - 1) / done->decode_seconds
                                      : static_cast<double>(prompt) / done->prefill_seconds);
    }
    lines.push_back(std::move(line));
    return {};
  };
  if (f.prompt > 0) {
    const base::Status done = run(fmt::format("pp{}", f.prompt), f.prompt, 1);
    if (!done) return done.error();
  }
  if (f.generate > 1) {
    const base::Status done = run(fmt::format("tg{}", f.generate), 1, f.generate);
    if (!done) return done.error();
  }
  return lines;
}

void Print(const std::vector<Line>& lines, const std::string& format) {
  if (format == "json") {
    boost::json::array out;
    for (const Line& l : lines) {
      out.push_back(boost::json::object{
          {"model", l.model},
          {"device", l.device},
          {"test", l.test},
          {"tokens_per_second", boost::json::array(l.rates.begin(), l.rates.end())},
          {"mean", Mean(l.rates)},
          {"median", Median(l.rates)},
          {"stddev", Deviation(l.rates)}});
    }
    fmt::print("{}\n", boost::json::serialize(out));
    return;
  }
  const bool csv = format == "csv";
  fmt::print("{}\n", csv ? "model,device,test,mean,stddev,median"
                         : "| model | device | test | tok/s | median |\n|---|---|---|---:|---:|");
  for (const Line& l : lines) {
    if (csv) {
      fmt::print("\"{}\",{},{},{:.2f},{:.2f},{:.2f}\n", l.model, l.device, l.test, Mean(l.rates),
                 Deviation(l.rates), Median(l.rates));
    } else {
      fmt::print("| {} | {} | {} | {:.2f} ± {:.2f} | {:.2f} |\n", l.model, l.device, l.test,
                 Mean(l.rates), Deviation(l.rates), Median(l.rates));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MicroFlags f;
  CLI::App app("Measure a model on this machine.", kName);
  app.require_subcommand(1);
  CLI::App* micro =
      app.add_subcommand("micro", "Prefill (pp) and decode (tg) of one request, tokens a second");
  apps::AddModelFlags(*micro, f.options);
  micro->remove_option(micro->get_option("--model"));
  micro
      ->add_option("--model,-m", f.models,
                   "A .gguf or a folder with config.json; several may be given")
      ->required();
  micro->add_option("-p,--n-prompt", f.prompt, "Prompt tokens of the prefill test; 0 leaves it out")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  micro->add_option("-n,--n-gen", f.generate, "Tokens of the decode test; 0 leaves it out")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  micro->add_option("-r,--repetitions", f.repeat, "Repeats, after one that warms up")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  micro->add_option("-o,--output", f.output, "Table format")
      ->check(CLI::IsMember({"md", "csv", "json"}))
      ->capture_default_str();
  if (const int code = apps::Parse(app, argc, argv); code >= 0) return code;

  std::vector<Line> lines;
  for (const std::string& model : f.models) {
    const base::Result<std::vector<Line>> measured = Measure(f, model);
    if (!measured) return apps::Fail(kName, measured.error());
    lines.insert(lines.end(), measured->begin(), measured->end());
  }
  Print(lines, f.output);
  return 0;
}
