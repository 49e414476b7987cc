#include "apps/bench/serve_flags.h"

#include <cmath>

#include "apps/model_flags.h"
#include "apps/serving_flags.h"
#include "base/strings.h"

namespace apps::bench {
namespace {

using base::Code;
using base::Error;

constexpr const char* kData = "Data";
constexpr const char* kLoad = "Load";
constexpr const char* kHttp = "Over HTTP";
constexpr const char* kOutput = "Output";
constexpr const char* kProfile = "Profile";

void AddDataFlags(CLI::App& app, ServeFlags& f) {
  app.add_option("--num-prompts", f.num_prompts, "Requests of a run")
      ->check(CLI::Range(1, 1 << 24))
      ->group(kData)
      ->capture_default_str();
  app.add_option("--input-len,--random-input-len", f.input_text,
                 "Tokens of a random prompt: a number, or a range such as 100..1024")
      ->group(kData)
      ->capture_default_str();
  app.add_option("--output-len,--random-output-len", f.output_text,
                 "Tokens of an answer: a number or a range; of a data set: instead of its own")
      ->group(kData)
      ->capture_default_str();
  app.add_option("--range-ratio,--random-range-ratio", f.range_ratio,
                 "R: lengths are uniform in [len (1 - R), len (1 + R)]")
      ->check(Within(0, 0.999))
      ->group(kData)
      ->capture_default_str();
  app.add_option("--prefix-len,--random-prefix-len", f.prefix,
                 "Tokens that all prompts of a run begin with, beside --input-len")
      ->check(CLI::Range(0, 1 << 24))
      ->group(kData)
      ->capture_default_str();
  app.add_option("--dataset-path", f.dataset, "Conversations in ShareGPT's form (JSON)")
      ->group(kData);
  app.add_option("--seed", f.seed, "Of prompts, lengths, arrivals and sampling; each run adds one")
      ->group(kData)
      ->capture_default_str();
}

void AddLoadFlags(CLI::App& app, ServeFlags& f) {
  app.add_option("--concurrency,--max-concurrency", f.concurrency,
                 "Requests under way at most; 0: no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->group(kLoad)
      ->capture_default_str();
  app.add_option("--sweep", f.sweep, "Concurrencies that are measured one after the other: 1,2,4")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->group(kLoad);
  app.add_option("--request-rate", f.request_rate,
                 "Requests a second, at random moments (Poisson); inf: all at once")
      ->check(Within(1e-6, std::numeric_limits<double>::infinity()))
      ->group(kLoad)
      ->capture_default_str();
  app.add_option("--temperature", f.temperature, "0: greedy")
      ->check(Within(0, 100))
      ->group(kLoad)
      ->capture_default_str();
  app.add_flag("--ignore-eos,!--no-ignore-eos", f.ignore_eos,
               "Answers go on after an end token (the default for random prompts)")
      ->group(kLoad);
  app.add_option("--num-warmups", f.warmups, "Requests before the measured ones")
      ->check(CLI::Range(0, 1 << 20))
      ->group(kLoad)
      ->capture_default_str();
  app.add_option("--repeat", f.repeat, "Runs of each setting; the middle one is shown in full")
      ->check(CLI::Range(1, 10000))
      ->group(kLoad)
      ->capture_default_str();
}

void AddHttpFlags(CLI::App& app, ServeFlags& f) {
  app.add_option("--url,--base-url", f.url, "Measure the server at http://host:port instead")
      ->group(kHttp);
  app.add_option("--endpoint", f.endpoint, "Its path, of completions or chat/completions")
      ->group(kHttp)
      ->capture_default_str();
  app.add_option("--served-model-name", f.served_model,
                 "Its model (default: the first that it lists)")
      ->group(kHttp);
  app.add_option("--api-key", f.api_key, "Its key")->group(kHttp);
  app.add_option("--prompt-form", f.prompt_form,
                 "How prompts are sent; text needs --model for its tokenizer")
      ->check(CLI::IsMember({"ids", "text"}))
      ->group(kHttp)
      ->capture_default_str();
  app.add_option("--extra-body", f.extra_body,
                 "A JSON object of further fields for every request: {\"cache_prompt\": false}")
      ->group(kHttp);
}

void AddOutputFlags(CLI::App& app, ServeFlags& f) {
  app.add_option("--output-json", f.output_json, "File for the results")->group(kOutput);
  app.add_flag("--save-detailed", f.detailed, "With every request's times in --output-json")
      ->group(kOutput);
  app.add_option("--output-token-ids", f.output_ids, "File for the answers' token ids (JSON)")
      ->group(kOutput);
  app.add_option("--report", f.report, "File for a page with plots (HTML)")->group(kOutput);
  app.add_flag("--profile", f.profile, "A table of kernels in decode steps, instead")
      ->group(kProfile);
  app.add_option("--batch", f.batch, "Requests in a step of --profile")
      ->check(CLI::Range(1, 4096))
      ->group(kProfile)
      ->capture_default_str();
  app.add_option("--profile-lengths", f.profile_lengths,
                 "Output tokens of the two answers whose difference is shown")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, 1 << 20))
      ->group(kProfile)
      ->capture_default_str();
}

Error NoEffect(const std::string& flag, const std::string& beside) {
  return {Code::kInvalidArgument, fmt::format("{} has no effect {}", flag, beside)};
}

// The first of the group's flags that was given, but for those in `spared`.
std::string Given(const CLI::App& app, const std::vector<std::string>& groups,
                  const std::vector<std::string>& spared) {
  for (const CLI::Option* o : app.get_options()) {
    if (o->count() == 0) continue;
    std::string name = o->get_name();
    if (std::find(groups.begin(), groups.end(), o->get_group()) == groups.end()) continue;
    if (std::find(spared.begin(), spared.end(), name) == spared.end()) return name;
  }
  return "";
}

base::Status RefuseIdleFlags(const CLI::App& app, const ServeFlags& f) {
  const std::string model_flags = app.get_option("--model")->get_group();
  if (f.profile) {
    const std::string idle =
        Given(app, {kData, kLoad, kHttp, kOutput}, {"--input-len", "--output-json"});
    if (!idle.empty()) return NoEffect(idle, "with --profile");
    for (const char* flag : {"--max-num-seqs", "--enable-prefix-caching", "--max-queue-size"}) {
      if (app.count(flag) > 0) return NoEffect(flag, "with --profile");
    }
    return {};
  }
  if (const std::string idle = Given(app, {kProfile}, {}); !idle.empty()) {
    return NoEffect(idle, "without --profile");
  }
  if (f.url.empty()) {
    if (const std::string idle = Given(app, {kHttp}, {}); !idle.empty()) {
      return NoEffect(idle, "without --url");
    }
  } else {
    const std::string idle = Given(app, {model_flags}, {"--model", "--help"});
    if (!idle.empty()) return NoEffect(idle, "with --url: the server was started with its own");
  }
  if (f.detailed && f.output_json.empty()) {
    return NoEffect("--save-detailed", "without --output-json");
  }
  if (!f.dataset.empty()) {
    for (const char* flag : {"--input-len", "--range-ratio", "--prefix-len"}) {
      if (app.count(flag) > 0) return NoEffect(flag, "with --dataset-path");
    }
  }
  if (!f.sweep.empty() && app.count("--concurrency") > 0) {
    return NoEffect("--concurrency", "with --sweep");
  }
  return {};
}

}  // namespace

void AddServeFlags(CLI::App& app, ServeFlags& f) {
  AddModelFlags(app, f.options);
  app.get_option("--model")->required(false);  // not with --url
  AddServingFlags(app, f.options);
  // Prompts are used as they are, and all alike.
  app.remove_option(app.get_option("--chat-template"));
  app.remove_option(app.get_option("--scheduling-policy"));
  AddDataFlags(app, f);
  AddLoadFlags(app, f);
  AddHttpFlags(app, f);
  AddOutputFlags(app, f);
}

base::Status Settle(const CLI::App& app, ServeFlags& f) {
  if (const base::Status s = RefuseIdleFlags(app, f); !s) return s;
  if (f.url.empty() && f.options.model.empty()) {
    return Error{Code::kInvalidArgument, "--model is missing (or --url, to measure a server)"};
  }
  f.output_given = app.count("--output-len") > 0;
  f.max_seqs_given = app.count("--max-num-seqs") > 0;
  const base::Result<Lengths> input = ParseLengths("--input-len", f.input_text, f.range_ratio);
  if (!input) return input.error();
  f.input = *input;
  const double output_ratio = f.dataset.empty() ? f.range_ratio : 0;
  const base::Result<Lengths> output = ParseLengths("--output-len", f.output_text, output_ratio);
  if (!output) return output.error();
  f.output = *output;
  if (!f.dataset.empty() && f.output_given && f.output.low != f.output.high) {
    return Error{Code::kInvalidArgument, "--output-len: with --dataset-path it is one number"};
  }
  if (f.profile) {
    if (f.input.low != f.input.high) {
      return Error{Code::kInvalidArgument, "--input-len: with --profile it is one number"};
    }
    if (f.profile_lengths[0] >= f.profile_lengths[1]) {
      return Error{Code::kInvalidArgument,
                   "--profile-lengths: the second must be larger than the first"};
    }
  }
  const bool chat = base::EndsWith(f.endpoint, "chat/completions");
  if (!f.url.empty() && (chat || f.prompt_form == "text" || !f.dataset.empty()) &&
      f.options.model.empty()) {
    return Error{Code::kInvalidArgument,
                 "--model is missing: prompts as text and --dataset-path need its tokenizer"};
  }
  return {};
}

}  // namespace apps::bench
