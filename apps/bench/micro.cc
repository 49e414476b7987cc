#include "apps/bench/micro.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <memory>

#include "apps/bench/engine_client.h"
#include "apps/bench/serve_flags.h"
#include "apps/bench/statistics.h"
#include "apps/fetch_model.h"
#include "apps/model_flags.h"
#include "base/json.h"
#include "base/strings.h"

namespace apps::bench {
namespace {

using vllm::engine::LoadOptions;

struct MicroFlags {
  LoadOptions options;  // of every model
  std::vector<std::string> models;
  std::vector<int64_t> prompts = {512}, outputs = {128}, batches = {1};
  std::vector<int> threads = {0};
  int repeat = 5;
  std::string output = "md";
};

struct Line {
  std::string model, device, test;
  int threads = 0;
  int64_t batch = 1;
  std::vector<double> rates;  // tokens a second, one a repeat
};

// Arbitrary but fixed ids, spread over the vocabulary.
std::vector<int32_t> Ids(int64_t count, int64_t vocabulary, int64_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>((i * 7919 + salt * 104729 + 17) % vocabulary));
  return ids;
}

// All prompts' tokens, from the first request to the last first token.
double PrefillRate(const RunRecord& run) {
  double begin = run.requests[0].start, end = 0, tokens = 0;
  for (const RequestRecord& r : run.requests) {
    begin = std::min(begin, r.start);
    end = std::max(end, r.times.front());
    tokens += static_cast<double>(r.prompt_tokens);
  }
  return tokens / (end - begin);
}

// The tokens that came while every sequence was in the batch.
double DecodeRate(const RunRecord& run) {
  double begin = 0, end = run.requests[0].end, tokens = 0;
  for (const RequestRecord& r : run.requests) {
    begin = std::max(begin, r.times.front());
    end = std::min(end, r.times.back());
  }
  for (const RequestRecord& r : run.requests) {
    for (const double t : r.times) tokens += t > begin && t <= end ? 1 : 0;
  }
  return end > begin ? tokens / (end - begin) : 0;
}

struct Test {
  std::string name;
  int64_t prompt = 1, output = 1, batch = 1;
};

base::Result<Line> MeasureTest(EngineClient& client, const Test& test, int repeat) {
  Line line{.model = "", .device = "", .test = test.name, .batch = test.batch, .rates = {}};
  const int64_t vocabulary = client.engine().vocabulary();
  for (int r = -1; r < repeat; ++r) {  // the first warms up
    Work work;
    for (int64_t b = 0; b < test.batch; ++b) {
      work.prompts.push_back({.ids = Ids(test.prompt, vocabulary, (r + 1) * test.batch + b),
                              .text = "",
                              .output_tokens = test.output});
    }
    work.arrivals.assign(work.prompts.size(), 0.0);
    const RunRecord run = client.Run(work, {});
    for (const RequestRecord& request : run.requests) {
      if (!request.ok()) return base::Error{base::Code::kInternal, request.error};
    }
    if (r >= 0) line.rates.push_back(test.output > 1 ? DecodeRate(run) : PrefillRate(run));
  }
  return line;
}

base::Result<std::vector<Line>> MeasureModel(const MicroFlags& f, const std::string& model,
                                             int threads) {
  std::vector<Test> tests;
  int64_t longest = 1;
  for (const int64_t batch : f.batches) {
    for (const int64_t p : f.prompts) {
      if (p > 0) tests.push_back({.name = fmt::format("pp{}", p), .prompt = p, .batch = batch});
      longest = std::max(longest, p);
    }
    for (const int64_t n : f.outputs) {
      if (n > 1) tests.push_back({.name = fmt::format("tg{}", n), .output = n, .batch = batch});
      longest = std::max(longest, n);
    }
  }
  LoadOptions options = f.options;
  options.model = model;
  const base::Status fetched = FetchModel(options);
  if (!fetched) return fetched.error();
  options.threads = threads;
  options.max_num_seqs = *std::max_element(f.batches.begin(), f.batches.end());
  if (options.max_model_len == 0) options.max_model_len = longest + 1;
  options.enable_prefix_caching = false;  // every repeat computes its prompt
  base::Result<std::unique_ptr<EngineClient>> client = EngineClient::Load(std::move(options));
  if (!client) return client.error();
  std::vector<Line> lines;
  for (const Test& test : tests) {
    base::Result<Line> line = MeasureTest(**client, test, f.repeat);
    if (!line) return line.error();
    line->model = model;
    line->device = (*client)->engine().options().device;
    line->threads = threads;
    lines.push_back(*std::move(line));
  }
  return lines;
}

std::string Threads(int threads) { return threads == 0 ? "all" : std::to_string(threads); }

void Print(const std::vector<Line>& lines, const std::string& format) {
  if (format == "json") {
    boost::json::array out;
    for (const Line& l : lines) {
      out.push_back(boost::json::object{
          {"model", l.model},
          {"device", l.device},
          {"threads", l.threads},
          {"batch", l.batch},
          {"test", l.test},
          {"tokens_per_second", boost::json::array(l.rates.begin(), l.rates.end())},
          {"mean", Mean(l.rates)},
          {"median", Percentile(l.rates, 50)},
          {"stddev", Deviation(l.rates)}});
    }
    fmt::print("{}\n", boost::json::serialize(out));
    return;
  }
  const bool csv = format == "csv";
  fmt::print("{}\n", csv ? "model,device,threads,batch,test,mean,stddev,median"
                         : "| model | device | threads | batch | test | tok/s | median |\n"
                           "|---|---|---:|---:|---|---:|---:|");
  for (const Line& l : lines) {
    std::string model = l.model;
    if (csv) {
      std::string quoted;  // as CSV wants it
      for (const char c : model) quoted += c == '"' ? "\"\"" : std::string(1, c);
      fmt::print("\"{}\",{},{},{},{},{:.2f},{:.2f},{:.2f}\n", quoted, l.device, l.threads, l.batch,
                 l.test, Mean(l.rates), Deviation(l.rates), Percentile(l.rates, 50));
    } else {
      fmt::print("| {} | {} | {} | {} | {} | {:.2f} ± {:.2f} | {:.2f} |\n", model, l.device,
                 Threads(l.threads), l.batch, l.test, Mean(l.rates), Deviation(l.rates),
                 Percentile(l.rates, 50));
    }
  }
}

int Micro(const MicroFlags& f) {
  std::vector<Line> lines;
  for (const std::string& model : f.models) {
    for (const int threads : f.threads) {
      const base::Result<std::vector<Line>> measured = MeasureModel(f, model, threads);
      if (!measured) return Fail(kName, measured.error());
      lines.insert(lines.end(), measured->begin(), measured->end());
    }
  }
  if (lines.empty()) {
    return Fail(kName, {base::Code::kInvalidArgument,
                        "-p and -n leave nothing to measure: -p from 1, -n from 2"});
  }
  Print(lines, f.output);
  return 0;
}

}  // namespace

void AddMicro(CLI::App& app, std::function<int()>& action) {
  auto f = std::make_shared<MicroFlags>();
  CLI::App* micro =
      app.add_subcommand("micro", "Prefill (pp) and decode (tg) of a fixed batch, tokens a second");
  AddModelFlags(*micro, f->options);
  for (const char* name : {"--model", "--threads"}) {
    micro->remove_option(micro->get_option(name));
  }
  micro
      ->add_option("--model,-m", f->models,
                   "A .gguf or a folder with config.json; several may be given")
      ->required();
  micro->add_option("-p,--n-prompt", f->prompts, "Prompt tokens of prefill tests, 0: none")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  micro->add_option("-n,--n-gen", f->outputs, "Tokens of decode tests, 0: none")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  micro->add_option("-t,--threads", f->threads, "CPU threads; 0 means one a core")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  micro->add_option("-b,--batch", f->batches, "Sequences at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  micro->add_option("-r,--repetitions", f->repeat, "Repeats, after one that warms up")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  micro->add_option("-o,--output", f->output, "Table format")
      ->check(CLI::IsMember({"md", "csv", "json"}))
      ->capture_default_str();
  micro->callback([f, &action] { action = [f] { return Micro(*f); }; });
}

}  // namespace apps::bench
