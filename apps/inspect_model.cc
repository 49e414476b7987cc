// vllm-inspect info, graph, plan, logits, devices.
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <memory>
#include <numeric>

#include "apps/fetch_model.h"
#include "apps/inspect.h"
#include "apps/model_flags.h"
#include "base/json.h"
#include "base/strings.h"
#include "vllm/engine/llm.h"
#include "vllm/weights/gguf.h"

namespace apps {
namespace {

namespace json = boost::json;
using vllm::engine::Llm;
using vllm::engine::LoadOptions;

struct ModelFlags {
  LoadOptions options;
  bool as_json = false;
  int64_t batch = 1, tokens = 0, context = 128;
  bool measure = false;
  std::vector<int32_t> ids, at_ids;
  int top = 5;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

int Info(ModelFlags& f) {
  base::Result<std::unique_ptr<vllm::weights::Checkpoint>> opened = vllm::weights::Checkpoint::Open(
      f.options.model,
      {.dummy = f.options.load_format == "dummy", .quantization = f.options.quantization});
  if (!opened) return Fail(kInspect, opened.error());
  const vllm::weights::Checkpoint& c = **opened;
  const vllm::weights::Config& config = c.config();
  json::object settings = {{"architecture", config.architecture},
                           {"family", config.family},
                           {"hidden_size", config.hidden_size},
                           {"intermediate_size", config.intermediate_size},
                           {"num_hidden_layers", config.num_hidden_layers},
                           {"num_attention_heads", config.num_heads},
                           {"num_key_value_heads", config.num_kv_heads},
                           {"head_dim", config.head_dim},
                           {"vocab_size", config.vocab_size},
                           {"max_position_embeddings", config.max_position_embeddings},
                           {"rms_norm_eps", config.rms_norm_eps},
                           {"hidden_act", config.hidden_act},
                           {"rope_type", config.rope.type},
                           {"rope_theta", config.rope.theta},
                           {"sliding_window", config.sliding_window}};
  uint64_t bytes = 0;
  json::array tensors;
  for (const auto& [name, info] : c.tensors()) {
    bytes += info.bytes;
    tensors.push_back(json::object{{"name", name},
                                   {"dtype", std::string(vt::ir::Name(info.dtype))},
                                   {"shape", json::array(info.shape.begin(), info.shape.end())},
                                   {"bytes", info.bytes}});
  }
  json::array keys;
  if (c.gguf() != nullptr) {
    for (const std::string_view key : c.gguf()->keys()) keys.push_back(json::string(key));
  }
  if (f.as_json) {
    fmt::print(
        "{}\n",
        json::serialize(json::object{
            {"config", settings}, {"bytes", bytes}, {"tensors", tensors}, {"gguf_keys", keys}}));
    return 0;
  }
  for (const auto& [key, value] : settings)
    fmt::print("{:<26}{}\n", std::string_view(key), json::serialize(value));
  fmt::print("{:<26}{} in {} tensors\n", "weights", base::HumanBytes(bytes), c.tensors().size());
  for (const auto& [name, info] : c.tensors()) {
    fmt::print("  {:<60} {:<7} {}\n", name, vt::ir::Name(info.dtype), ShapeText(info.shape));
  }
  for (const json::value& key : keys)
    fmt::print("  gguf key {}\n", std::string_view(key.get_string()));
  return 0;
}

base::Result<std::unique_ptr<vt::Backend>> OpenBackend(const LoadOptions& o,
                                                       const vt::DeviceRegistry& registry) {
  const base::Result<std::pair<vt::Platform*, int>> device = registry.Find(o.device);
  if (!device) return device.error();
  return device->first->Open(
      {.index = device->second, .threads = o.threads, .isa = o.isa, .dtype = o.dtype});
}

// A device that is there, or a card that is known though it need not be.
base::Result<std::unique_ptr<vt::ir::Target>> TargetOf(const vllm::engine::LoadOptions& o,
                                                       const vt::DeviceRegistry& registry) {
  for (vt::Platform* platform : registry.platforms()) {
    base::Result<std::unique_ptr<vt::ir::Target>> card = platform->Describe(o.device, o.dtype);
    if (card) return card;
  }
  base::Result<std::unique_ptr<vt::Backend>> backend = OpenBackend(o, registry);
  if (!backend) return backend.error();
  return std::unique_ptr<vt::ir::Target>(*std::move(backend));
}

vt::ir::Bucket BucketOf(const ModelFlags& f) {
  return {f.tokens > 0 ? std::max(f.tokens, f.batch) : f.batch, f.batch, f.batch};
}

int GraphPasses(ModelFlags& f) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load(f.options.module_folders);
  const base::Result<std::unique_ptr<vt::Backend>> backend = OpenBackend(f.options, registry);
  if (!backend) return Fail(kInspect, backend.error());
  base::Result<vllm::engine::OpenedModel> opened =
      vllm::engine::OpenModel(f.options, backend->get());
  if (!opened) return Fail(kInspect, opened.error());
  std::vector<std::pair<std::string, std::string>> trace = {{"built", vt::ir::Dump(opened->graph)}};
  vt::ir::Lower(opened->graph, **backend, BucketOf(f), &trace);
  if (f.as_json) {
    json::array passes;
    for (const auto& [name, dump] : trace)
      passes.push_back(json::object{{"pass", name}, {"graph", dump}});
    fmt::print("{}\n", json::serialize(json::object{{"passes", passes}}));
    return 0;
  }
  for (const auto& [name, dump] : trace) fmt::print("== {}\n{}\n", name, dump);
  return 0;
}

// Fills the cache with `context` tokens of each request, then times every node of the step that was
// asked for.
base::Result<std::vector<double>> MeasureNodes(Llm& llm, const ModelFlags& f) {
  const auto ids = [&](int64_t n) {
    std::vector<int32_t> out(static_cast<size_t>(n));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] =
          static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(llm.runner().vocab_size()));
    return out;
  };
  const vt::ir::Bucket step = BucketOf(f);
  for (int64_t r = 0; r < f.batch; ++r) {
    for (int64_t start = 0; start < f.context;) {
      const int64_t n = std::min(f.context - start, f.options.max_num_batched_tokens);
      const vllm::engine::Chunk chunk{
          .sequence = static_cast<int>(r), .start = start, .tokens = ids(n)};
      const auto done = llm.Step({&chunk, 1});
      if (!done) return done.error();
      start += n;
    }
  }
  std::vector<vllm::engine::Chunk> chunks;
  int64_t left = step.tokens;
  for (int64_t r = 0; r < f.batch; ++r) {
    const int64_t n = left / (f.batch - r);
    left -= n;
    chunks.push_back({.sequence = static_cast<int>(r), .start = f.context, .tokens = ids(n)});
  }
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < 7; ++i) {
    const auto done = llm.Step(chunks);  // packs the step's inputs
    if (!done) return done.error();
    base::Result<std::vector<double>> times =
        llm.runner().ExecutableFor(step).Profile(llm.runner().queue());
    if (!times) return times.error();
    runs.push_back(*std::move(times));
  }
  std::vector<double> median(runs[0].size());
  for (size_t node = 0; node < median.size(); ++node) {
    std::vector<double> samples;
    for (const auto& run : runs) samples.push_back(run[node]);
    std::nth_element(samples.begin(), samples.begin() + 3, samples.end());
    median[node] = samples[3];
  }
  return median;
}

json::object PlanJson(const vt::ir::Plan& plan, const vt::ir::Target& target, int64_t context,
                      const std::vector<double>& measured) {
  const vt::ir::Rates rates = target.MachineRates();
  const int64_t launches = target.Launches(plan);
  json::array nodes;
  for (size_t i = 0; i < plan.graph.nodes.size(); ++i) {
    const vt::ir::Node& node = plan.graph.nodes[i];
    const vt::ir::Cost cost = vt::ir::Predict(plan.graph, node, plan.bucket, context, rates);
    json::object o = {{"node", node.name},         {"op", std::string(vt::ir::Name(node.op))},
                      {"kernel", plan.kernels[i]}, {"bytes", cost.bytes},
                      {"flops", cost.flops},       {"predicted_us", cost.seconds * 1e6}};
    if (i < measured.size()) o["measured_us"] = measured[i] * 1e6;
    nodes.push_back(std::move(o));
  }
  json::object out = {
      {"tokens", plan.bucket.tokens},
      {"requests", plan.bucket.requests},
      {"arena_bytes", plan.memory.arena_bytes},
      {"launches_per_token", launches},
      {"predicted_ms_per_token", vt::ir::PredictStep(plan, launches, context, rates) * 1e3}};
  if (!measured.empty()) {
    out["measured_ms_per_token"] = std::accumulate(measured.begin(), measured.end(), 0.0) * 1e3;
  }
  out["nodes"] = std::move(nodes);
  return out;
}

int ShowPlan(const ModelFlags& f, const vt::ir::Plan& plan, const vt::ir::Target& target,
             const std::vector<double>& measured) {
  if (f.as_json) {
    fmt::print("{}\n", json::serialize(PlanJson(plan, target, f.context, measured)));
  } else {
    fmt::print("{}", vt::ir::DumpPlan(plan, target.Launches(plan), target.MachineRates(), f.context,
                                      measured));
  }
  return 0;
}

int Plan(ModelFlags& f) {
  if (!f.measure) {
    const vt::DeviceRegistry registry = vt::DeviceRegistry::Load(f.options.module_folders);
    const base::Result<std::unique_ptr<vt::ir::Target>> target = TargetOf(f.options, registry);
    if (!target) return Fail(kInspect, target.error());
    base::Result<vllm::engine::OpenedModel> opened =
        vllm::engine::OpenModel(f.options, target->get());
    if (!opened) return Fail(kInspect, opened.error());
    return ShowPlan(f, vt::ir::Lower(opened->graph, **target, BucketOf(f)), **target, {});
  }
  f.options.max_num_seqs = f.batch;
  const int64_t tokens = BucketOf(f).tokens;
  f.options.max_num_batched_tokens = std::max(f.options.max_num_batched_tokens, tokens);
  ShowProgress(f.options);
  base::Result<std::unique_ptr<Llm>> llm = Llm::Load(f.options);
  if (!llm) return Fail(kInspect, llm.error());
  if (f.context + tokens > (*llm)->options().max_model_len) {
    return Fail(kInspect, {base::Code::kInvalidArgument,
                           "--context and --tokens together are longer than the context"});
  }
  f.options.max_num_batched_tokens = (*llm)->options().max_num_batched_tokens;
  const base::Result<std::vector<double>> measured = MeasureNodes(**llm, f);
  if (!measured) return Fail(kInspect, measured.error());
  return ShowPlan(f, (*llm)->runner().ExecutableFor(BucketOf(f)).plan(), (*llm)->backend(),
                  *measured);
}

// log-probabilities of one row, in place of logits.
std::vector<double> LogProbabilities(std::span<const float> row) {
  double max = -INFINITY;
  for (const float x : row) max = std::max(max, static_cast<double>(x));
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - max);
  const double log_sum = max + std::log(sum);
  std::vector<double> out(row.size());
  for (size_t i = 0; i < row.size(); ++i) out[i] = static_cast<double>(row[i]) - log_sum;
  return out;
}

int Logits(ModelFlags& f) {
  f.options.score_prompts = true;
  f.options.max_num_batched_tokens = std::min<int64_t>(f.options.max_num_batched_tokens, 64);
  ShowProgress(f.options);
  base::Result<std::unique_ptr<Llm>> llm = Llm::Load(f.options);
  if (!llm) return Fail(kInspect, llm.error());
  for (const int32_t id : f.at_ids) {
    if (id < 0 || id >= (*llm)->runner().vocab_size()) {
      return Fail(kInspect, {base::Code::kInvalidArgument,
                             fmt::format("--at-ids: {} is outside the vocabulary of {}", id,
                                         (*llm)->runner().vocab_size())});
    }
  }
  json::array positions;
  const base::Status scored = (*llm)->Score(f.ids, [&](int64_t position,
                                                       std::span<const float> row) {
    const std::vector<double> logprobs = LogProbabilities(row);
    std::vector<int32_t> order(logprobs.size());
    std::iota(order.begin(), order.end(), 0);
    const size_t top = std::min<size_t>(static_cast<size_t>(f.top), order.size());
    std::partial_sort(
        order.begin(), order.begin() + static_cast<int64_t>(top), order.end(),
        [&](int32_t a, int32_t b) {
          return logprobs[static_cast<size_t>(a)] > logprobs[static_cast<size_t>(b)] ||
                 (logprobs[static_cast<size_t>(a)] == logprobs[static_cast<size_t>(b)] && a < b);
        });
    order.resize(top);
    order.insert(order.end(), f.at_ids.begin(), f.at_ids.end());
    json::array ids, values;
    for (const int32_t id : order) {
      ids.push_back(id);
      values.push_back(logprobs[static_cast<size_t>(id)]);
    }
    if (!f.as_json) {
      fmt::print("{:5}", position);
      for (size_t i = 0; i < order.size(); ++i) {
        fmt::print("  {} {:.5f}", order[i], logprobs[static_cast<size_t>(order[i])]);
      }
      fmt::print("\n");
    }
    positions.push_back(json::object{{"ids", std::move(ids)}, {"logprobs", std::move(values)}});
  });
  if (!scored) return Fail(kInspect, scored.error());
  if (f.as_json)
    fmt::print("{}\n", json::serialize(json::object{{"positions", std::move(positions)}}));
  return 0;
}

int Devices(bool as_json) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load();
  json::array devices, problems;
  for (vt::Platform* p : registry.platforms()) {
    std::string why;
    const std::vector<vt::DeviceInfo> found = p->Devices(&why);
    if (found.empty()) problems.push_back(json::string(p->Name() + ": " + why));
    for (const vt::DeviceInfo& d : found) {
      devices.push_back(json::object{{"name", d.name},
                                     {"description", d.description},
                                     {"total_bytes", d.total_bytes},
                                     {"free_bytes", d.free_bytes},
                                     {"graphs", p->support_static_graph_mode()}});
      if (!as_json) {
        fmt::print("{:<8} {} ({} of {} free)\n", d.name, d.description,
                   base::HumanBytes(d.free_bytes), base::HumanBytes(d.total_bytes));
      }
    }
  }
  for (const std::string& problem : registry.problems()) problems.push_back(json::string(problem));
  if (as_json) {
    fmt::print("{}\n", json::serialize(json::object{{"devices", devices}, {"problems", problems}}));
  } else {
    for (const json::value& p : problems) fmt::print("{}\n", std::string_view(p.get_string()));
  }
  return 0;
}

CLI::App* Command(CLI::App& app, const char* name, const char* help,
                  const std::shared_ptr<ModelFlags>& f) {
  CLI::App* sub = app.add_subcommand(name, help);
  AddModelFlags(*sub, f->options);
  sub->add_flag("--json", f->as_json, "Print JSON");
  return sub;
}

void AddStepFlags(CLI::App& sub, ModelFlags& f) {
  sub.add_option("--batch", f.batch, "Requests in the step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub.add_option("--tokens", f.tokens, "Tokens in the step; 0: one a request (decode)")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
}

// Runs `command` on the flags' model, fetched when it is a name.
int WithModel(ModelFlags& f, int (*command)(ModelFlags&)) {
  const base::Status fetched = FetchModel(f.options);
  return fetched ? command(f) : Fail(kInspect, fetched.error());
}

}  // namespace

void AddInfo(CLI::App& app, Action& action) {
  auto f = std::make_shared<ModelFlags>();
  CLI::App* sub = Command(app, "info", "Metadata, configuration and tensors", f);
  sub->callback([f, &action] { action = [f] { return WithModel(*f, Info); }; });
}

void AddGraph(CLI::App& app, Action& action) {
  auto f = std::make_shared<ModelFlags>();
  CLI::App* sub = Command(app, "graph", "The graph as built and after each pass", f);
  AddStepFlags(*sub, *f);
  sub->callback([f, &action] { action = [f] { return WithModel(*f, GraphPasses); }; });
}

void AddPlan(CLI::App& app, Action& action) {
  auto f = std::make_shared<ModelFlags>();
  CLI::App* sub = Command(app, "plan", "Kernels, memory plan and predicted time a node", f);
  AddStepFlags(*sub, *f);
  sub->add_option("--context", f->context, "Cached tokens of each request")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  sub->add_flag("--measure", f->measure,
                "Load the weights, run the step and print measured times beside predicted ones");
  sub->callback([f, &action] { action = [f] { return WithModel(*f, Plan); }; });
}

void AddLogits(CLI::App& app, Action& action) {
  auto f = std::make_shared<ModelFlags>();
  CLI::App* sub = Command(
      app, "logits", "The likeliest next tokens after every position, with log-probabilities", f);
  AddIds(*sub, "--ids", f->ids, "Token ids of the text, separated by commas")->required();
  sub->add_option("--top", f->top, "How many a position")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  AddIds(*sub, "--at-ids", f->at_ids, "Log-probabilities of these ids too, after the top ones");
  sub->callback([f, &action] { action = [f] { return WithModel(*f, Logits); }; });
}

void AddDevices(CLI::App& app, Action& action) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("devices", "Device modules and devices found");
  sub->add_flag("--json", *as_json, "Print JSON");
  sub->callback([as_json, &action] { action = [as_json] { return Devices(*as_json); }; });
}

}  // namespace apps
