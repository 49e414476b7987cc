// From a checkpoint to a graph and weights in the layouts that the device wants.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/strings.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/engine/memory_budget.h"
#include "vllm/models/registry.h"
#include "vllm/weights/family.h"
#include "vt/ir/quant.h"

namespace vllm::engine {
namespace {

using vt::ir::DType;

vt::ir::SamplerLayout SamplerOf(const weights::Config& config, const LoadOptions& options) {
  return {.vocabulary = config.vocab_size, .history = options.max_model_len};
}

// Tokens that end an answer, as the configuration, the tokenizer and the names of turns' ends say.
std::vector<int32_t> EndIds(const LoadedModel& model) {
  std::vector<int32_t> ids = model.config.eos_token_ids;
  if (model.tokenizer == nullptr) return ids;
  if (const auto eos = model.tokenizer->eos_id()) ids.push_back(*eos);
  // Ends of a turn that published GGUF files do not list as end tokens.
  for (const char* name : {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|eom_id|>",
                           "<|return|>", "<|call|>"}) {
    const auto id = model.tokenizer->TokenId(name);
    // Of gpt-oss it ends a message, of which an answer has several.
    if (name == std::string_view("<|end|>") && model.tokenizer->TokenId("<|channel|>")) continue;
    if (id && model.tokenizer->IsSpecial(*id)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The type in which a graph is offered a tensor: vectors (norms, biases) always in f32, matrices as
// the device says unless f32 is asked for. It is held as the graph takes it.
DType OfferedType(const weights::TensorInfo& info, const LoadOptions& options,
                  const vt::ir::Target* target) {
  if (info.shape.size() < 2 || options.dtype == "float32") return DType::kF32;
  return target != nullptr ? target->HeldFormat(info.dtype) : info.dtype;
}

// The type of cached keys and values: that of values between nodes, but half of f32's size unless
// f32 is asked for.
DType CacheType(const LoadOptions& options, const vt::ir::Target* target) {
  if (options.kv_cache_dtype == "float32") return DType::kF32;
  if (options.kv_cache_dtype == "float16") return DType::kF16;
  if (options.kv_cache_dtype == "bfloat16") return DType::kBF16;
  if (options.kv_cache_dtype == "fp8" || options.kv_cache_dtype == "fp8_e4m3")
    return DType::kF8_E4M3;
  if (options.dtype == "float32") return DType::kF32;
  const DType values = target != nullptr ? target->ValueType() : DType::kF32;
  return values == DType::kF32 ? DType::kF16 : values;
}

// Tokens of a request that the model was made for.
int64_t OwnLength(const weights::Config& config) {
  const int64_t own = config.max_position_embeddings;
  // Dynamic rope is for going beyond the trained length, up to the factor.
  if (config.rope.type != "dynamic") return own;
  return static_cast<int64_t>(static_cast<double>(own) * config.rope.factor);
}

// Sequences in a step where nobody says how many.
constexpr int64_t kSequences = 64;

bool IsEncoder(const weights::Config& config) { return weights::FamilyOf(config).encoder; }

base::Status SettleContext(LoadOptions& options, const weights::Config& config) {
  const int64_t own = OwnLength(config);
  if (options.max_model_len > own) {
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("--max-model-len {} is over the {} tokens that the model was "
                                   "made for",
                                   options.max_model_len, own)};
  }
  if (options.max_model_len == 0) options.max_model_len = own;
  const int64_t most = options.max_num_seqs > 0 ? options.max_num_seqs : kSequences;
  options.max_num_batched_tokens =
      std::min(options.max_num_batched_tokens, options.max_model_len * most);
  // A text goes through an encoder in one piece.
  if (IsEncoder(config))
    options.max_num_batched_tokens =
        std::max(options.max_num_batched_tokens, options.max_model_len);
  return {};
}

base::Status CheckAllUsed(const weights::Checkpoint& checkpoint,
                          const std::set<std::string>& used) {
  for (const auto& [name, info] : checkpoint.tensors()) {
    if (used.contains(name) || base::EndsWith(name, "rotary_emb.inv_freq")) continue;
    return base::Error{
        base::Code::kUnsupported,
        fmt::format("tensor '{}' is in the checkpoint, but family '{}' has no use for it",
                    base::Printable(name), checkpoint.config().family)};
  }
  return {};
}

// The use of each weight by name: the strongest of its readers' (a tied embedding is stored once,
// as a linear).
std::map<std::string, vt::ir::WeightUse> UsesOf(const vt::ir::Graph& graph) {
  std::map<std::string, vt::ir::WeightUse> uses;
  for (const vt::ir::Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const vt::ir::Value& v = graph.value(node.inputs[i]);
      if (v.kind != vt::ir::ValueKind::kWeight) continue;
      vt::ir::WeightUse use = vt::ir::WeightUse::kPlain;
      if (node.op == vt::ir::Op::kEmbed) use = vt::ir::WeightUse::kEmbedding;
      if ((node.op == vt::ir::Op::kLinear && v.shape.size() == 2) || v.shape.size() == 3)
        use = vt::ir::WeightUse::kLinear;
      vt::ir::WeightUse& known = uses[v.name];
      known = std::max(known, use);
    }
  }
  return uses;
}

int64_t CountOf(const weights::TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t n : info.shape) count *= n;
  return count;
}
int64_t ColumnsOf(const weights::TensorInfo& info) {
  return info.shape.empty() ? 1 : info.shape.back();
}
// Matrices of experts stand one after the other, each in the layout of a linear.
int64_t MatricesOf(const weights::TensorInfo& info) {
  return info.shape.size() == 3 ? info.shape[0] : 1;
}

// `count` values of any stored type, from bytes that may not be aligned.
std::vector<float> ToFloats(DType type, std::span<const std::byte> bytes, int64_t count) {
  std::vector<std::byte> aligned(bytes.begin(), bytes.end());
  std::vector<float> out(static_cast<size_t>(count));
  vt::ir::Dequantize(type, aligned.data(), out.data(), count);
  return out;
}

// Where each weight will stand in one piece of memory. In the order in which the graph first reads
// them: weights of linears that are merged stand side by side.
struct WeightPlan {
  struct One {
    std::string name;
    vt::DeviceWeight weight;
    int64_t offset = 0, bytes = 0;
  };
  std::vector<One> all;
  int64_t bytes = 0;
};

void LayOutWeights(const weights::Checkpoint& checkpoint, const vt::ir::Graph& graph,
                   const vt::Backend& backend, WeightPlan& plan) {
  constexpr int64_t kAlignment = 64;
  std::map<std::string, vt::ir::WeightUse> uses = UsesOf(graph);
  for (const vt::ir::Node& node : graph.nodes) {
    for (const vt::ir::ValueId v : node.inputs) {
      const auto use = uses.find(graph.value(v).name);
      if (graph.value(v).kind != vt::ir::ValueKind::kWeight || use == uses.end()) continue;
      const weights::TensorInfo& info = *checkpoint.Find(use->first);
      const int64_t matrices = MatricesOf(info), columns = ColumnsOf(info);
      const int64_t rows = CountOf(info) / std::max<int64_t>(columns * matrices, 1);
      WeightPlan::One& one = plan.all.emplace_back();
      one.name = use->first;
      one.weight.format = graph.value(v).dtype;
      one.weight.layout = backend.LayoutFor(one.weight.format, rows, columns, use->second);
      one.offset = plan.bytes;
      one.bytes = matrices * one.weight.layout.bytes;
      plan.bytes += (one.bytes + kAlignment - 1) / kAlignment * kAlignment;
      uses.erase(use);  // laid out
    }
  }
}

// The `index`th matrix of a tensor (of most the only one) to `memory`.
base::Status LoadMatrix(const weights::Checkpoint& checkpoint, const WeightPlan::One& one,
                        int64_t index, vt::Backend& backend, void* memory) {
  const weights::TensorInfo& info = *checkpoint.Find(one.name);
  const int64_t count = CountOf(info) / MatricesOf(info), columns = ColumnsOf(info);
  const int64_t size = vt::ir::Bytes(info.dtype, count), begin = index * size;
  const base::Result<std::span<const std::byte>> data =
      checkpoint.Range(one.name, static_cast<uint64_t>(begin), static_cast<uint64_t>(begin + size));
  if (!data) return data.error();
  vt::WeightView view{.data = data->data(),
                      .format = info.dtype,
                      .rows = columns == 0 ? 0 : count / columns,
                      .columns = columns};
  view.release = [&](int64_t from, int64_t to) {
    checkpoint.DropBytes(one.name, begin + from, begin + to);
  };
  std::vector<float> floats;
  std::vector<std::byte> halves;
  if (one.weight.format == DType::kF32 && info.dtype != DType::kF32) {
    view.format = DType::kF32;
    floats = ToFloats(info.dtype, *data, count);
    view.data = reinterpret_cast<const std::byte*>(floats.data());
    view.release = {};
  } else if (one.weight.format == DType::kF16 && vt::ir::IsQuantised(info.dtype)) {
    view.format = DType::kF16;
    floats = ToFloats(info.dtype, *data, count);
    halves.resize(static_cast<size_t>(vt::ir::Bytes(view.format, count)));
    vt::ir::Quantize(view.format, floats.data(), halves.data(), count);
    view.data = halves.data();
    view.release = {};
  }
  return backend.Repack(view, one.weight.layout, memory);
}

base::Status LoadWeights(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                         const WeightPlan& plan, LoadedModel& model) {
  size_t done = 0;
  int64_t values = 0, bytes = 0;
  base::Result<void*> all = model.backend->Allocate(std::max<int64_t>(plan.bytes, 1));
  if (!all) return all.error().In("weights");
  model.weight_memory = *all;
  for (const WeightPlan::One& one : plan.all) {
    const weights::TensorInfo& info = *checkpoint.Find(one.name);
    std::byte* const memory = static_cast<std::byte*>(*all) + one.offset;
    (model.weights[one.name] = one.weight).data = memory;
    // Expert by expert: a tensor that is stored in pieces is never in memory as a whole.
    const int64_t matrices = MatricesOf(info);
    for (int64_t m = 0; m < matrices; ++m) {
      const base::Status loaded =
          LoadMatrix(checkpoint, one, m, *model.backend, memory + m * one.weight.layout.bytes);
      if (!loaded) return loaded.error().In("weight '" + one.name + "'");
    }
    checkpoint.DropPages(one.name);
    values += CountOf(info);
    bytes += one.bytes;
    if (options.progress) {
      options.progress(static_cast<double>(++done) / static_cast<double>(plan.all.size()));
    }
  }
  model.description = fmt::format("{}, {} layers, {:.1f} M weights in {}", model.config.family,
                                  model.config.num_hidden_layers, static_cast<double>(values) / 1e6,
                                  base::HumanBytes(static_cast<uint64_t>(bytes)));
  return {};
}

const vt::ir::StateGroup* RecurrentGroup(const vt::ir::Graph& graph) {
  for (const vt::ir::StateGroup& g : graph.state_groups) {
    if (g.name == vt::ir::kRecurrentGroup) return &g;
  }
  return nullptr;
}

// Of layers that see the last tokens alone; 0: there are none.
int64_t LongestWindow(const vt::ir::Graph& graph) {
  int64_t longest = 0;
  for (const vt::ir::StateGroup& g : graph.state_groups) longest = std::max(longest, g.window);
  return longest;
}

// Output rows of a step that scores prompts: enough to use every core well, few enough that logits
// stay small.
constexpr int64_t kScoredRows = 64;

// `graphs`: the device has them. Steps have the same sizes whether they are captured or not, so
// that their kernels, and every bit of what they give, are the same.
StepOptions StepsOf(const LoadOptions& o, bool encoder, bool graphs) {
  StepOptions s;
  s.encoder = encoder;
  s.max_num_seqs = o.max_num_seqs;
  s.max_num_batched_tokens = o.max_num_batched_tokens;
  s.output_rows = std::max(o.max_num_seqs, o.score_prompts ? kScoredRows : 1);
  s.hidden = o.score_prompts;
  s.use_graphs = graphs && !o.enforce_eager;
  s.warn = o.warn;
  s.block_size = o.block_size;
  s.slots = s.recurrent_slots = o.max_num_seqs;
  if (!graphs) return s;
  s.decode_sizes = o.cuda_graph_sizes;
  if (s.decode_sizes.empty()) {
    for (int64_t n = 1; n < 8; n *= 2) s.decode_sizes.push_back(n);
    for (int64_t n = 8; n <= o.max_num_seqs; n += 8) s.decode_sizes.push_back(n);
  }
  for (int64_t n = 64; n < o.max_num_batched_tokens; n *= 2) s.mixed_sizes.push_back(n);
  return s;
}

}  // namespace

LoadedModel::~LoadedModel() {
  media.reset();
  runner.reset();
  if (backend != nullptr) backend->Free(weight_memory);
}

bool LoadedModel::recurrent() const { return RecurrentGroup(graph) != nullptr; }

namespace {

base::Result<std::unique_ptr<weights::Checkpoint>> OpenCheckpoint(const LoadOptions& options) {
  if (!options.quantization.empty() && options.load_format != "dummy") {
    return base::Error{
        base::Code::kInvalidArgument,
        "--quantization only makes dummy weights: give --load-format dummy with it, or a quantised "
        "file"};
  }
  return weights::Checkpoint::Open(options.model, {.dummy = options.load_format == "dummy",
                                                   .quantization = options.quantization});
}

// The text model's graph, or that of the encoder of other media. Adds the weights that it asked for
// to `used`.
base::Result<vt::ir::Graph> BuildGraph(const weights::Checkpoint& checkpoint,
                                       const LoadOptions& options, const vt::ir::Target* target,
                                       models::BuildFunction build, bool samples,
                                       std::set<std::string>& used) {
  const weights::Config& config = checkpoint.config();
  vt::ir::Builder builder(
      config.family,
      [&](const std::string& name) -> std::optional<vt::ir::WeightInfo> {
        const weights::TensorInfo* info = checkpoint.Find(name);
        if (info == nullptr) return std::nullopt;
        return vt::ir::WeightInfo{OfferedType(*info, options, target), info->shape};
      },
      {.dtype = CacheType(options, target),
       .block_size = options.block_size,
       .max_model_len = options.max_model_len,
       .sampler = samples ? std::optional(SamplerOf(config, options)) : std::nullopt});
  const vt::ir::ValueId end = build(builder, {config, options.max_model_len});
  std::vector<vt::ir::ValueId> outputs = {end};  // hidden states, or logits
  if (samples) {
    const vt::ir::Builder::Sampled sampled = builder.Sample(end);
    outputs.insert(outputs.end(), {sampled.tokens, sampled.values, sampled.ids});
  }
  base::Result<vt::ir::Graph> graph = builder.Finish(std::move(outputs));
  if (!graph) return graph.error().In(options.model);
  used.insert(builder.used().begin(), builder.used().end());
  return graph;
}

base::Result<OpenedModel> BuildGraphs(std::unique_ptr<weights::Checkpoint> checkpoint,
                                      const LoadOptions& options, const vt::ir::Target* target) {
  const weights::Config& config = checkpoint->config();
  const base::Result<models::BuildFunction> build = models::FindFamily(config.family);
  if (!build) return build.error();
  std::set<std::string> used;
  base::Result<vt::ir::Graph> graph =
      BuildGraph(*checkpoint, options, target, *build, !IsEncoder(config), used);
  if (!graph) return graph.error();
  OpenedModel out{.checkpoint = {}, .graph = *std::move(graph), .media = {}};
  if (const models::BuildFunction media = weights::FamilyOf(config).build_media) {
    LoadOptions own = options;
    own.max_model_len = config.audio.positions;
    own.kv_cache_dtype = "auto";  // its keys and values live for a step
    base::Result<vt::ir::Graph> encoder = BuildGraph(*checkpoint, own, target, media, false, used);
    if (!encoder) return encoder.error();
    out.media = *std::move(encoder);
  }
  const base::Status all = CheckAllUsed(*checkpoint, used);
  if (!all) return all.error().In(options.model);
  out.checkpoint = std::move(checkpoint);
  return out;
}

// What sees a window alone and what sees everything may take turns in pages. Snapshots of recurrent
// state stand behind blocks, not pages.
KvLayout LayoutOf(const LoadedModel& model, int64_t block_size) {
  if (model.window == 0 || model.recurrent()) return {};
  std::vector<int64_t> block_bytes;
  for (const vt::ir::StateGroup& group : model.graph.state_groups)
    block_bytes.push_back(model.backend->StateBlockBytes(group, block_size));
  return LayOutKv(model.graph.state_groups, block_bytes);
}

// What is known before there are plans.
MemoryBudget BudgetOf(const LoadedModel& model, const vt::Platform& platform, int64_t weight_bytes,
                      const LoadOptions& options, bool length_asked) {
  MemoryBudget b;
  b.weights = weight_bytes;
  b.window = model.window;
  b.page = model.layout.page_bytes();
  b.page_blocks = model.layout.page_blocks;
  for (const vt::ir::StateGroup& group : model.graph.state_groups) {
    const int64_t bytes = group.layers * model.backend->StateBlockBytes(group, options.block_size);
    if (group.name == vt::ir::kMediaGroup) continue;  // counted where plans are
    if (group.kind == vt::ir::StateGroup::Kind::kPagedWindow && b.window > 0) {
      b.window_block += bytes;
      continue;
    }
    (group.kind != vt::ir::StateGroup::Kind::kSlot ? b.block
     : group.name == vt::ir::kRecurrentGroup       ? b.state
                                                   : b.slots) += bytes;
  }
  b.block_size = options.block_size;
  b.free = static_cast<int64_t>(model.backend->Info().free_bytes);
  b.utilization = options.gpu_memory_utilization;
  b.kv_asked = options.kv_cache_memory;
  b.kv_default = platform.DefaultKvBytes();
  b.max_model_len = options.max_model_len;
  b.length_asked = length_asked;
  return b;
}

// Settles where snapshots of recurrent state stand.
base::Status SettleSnapshots(LoadOptions& options, const LoadedModel& model) {
  const auto bad = [](std::string why) {
    return base::Error{base::Code::kInvalidArgument, std::move(why)};
  };
  int64_t& every = options.mamba_block_size;
  if (every != 0 || options.mamba_snapshots >= 0) {
    const char* flag = every != 0 ? "--mamba-block-size" : "--mamba-snapshots";
    if (!model.recurrent()) {
      return bad(fmt::format("{} has no effect: this model has no recurrent layers", flag));
    }
    if (!options.enable_prefix_caching) {
      return bad(fmt::format("{} has no effect without prefix caching", flag));
    }
  }
  if (!model.recurrent() || !options.enable_prefix_caching) return {};
  // Blocks, and what recurrent layers compute at a time.
  const int64_t step = std::lcm(options.block_size, int64_t{64});
  if (every % step != 0 || every < 0) {
    return bad(fmt::format("--mamba-block-size is {}, but must be a multiple of {}", every, step));
  }
  if (every == 0) every = (1024 + step - 1) / step * step;
  return {};
}

// "3008 tokens", of which layers with windows have their own.
std::string CacheSize(const LoadedModel& model, int64_t block_size) {
  if (model.layout.paged()) {
    return fmt::format("{} pages of {} tokens (of {} in windows)", model.kv_blocks,
                       model.layout.page_blocks * block_size, block_size);
  }
  const std::string windows =
      model.window == 0 ? "" : fmt::format(" ({} in windows)", model.window_blocks * block_size);
  return fmt::format("{} tokens{}", model.kv_blocks * block_size, windows);
}

}  // namespace

// Whether the device has a kernel for every node, before anything is loaded.
base::Status CheckSupported(const StepPlans& plans, const vt::Backend& backend) {
  for (const StepPlans::One& one : plans.plans) {
    const vt::ir::Graph& g = one.plan.graph;
    for (const vt::ir::Node& n : g.nodes) {
      if (backend.Supports(g, n, one.plan.bucket)) continue;
      std::string types;
      for (const vt::ir::ValueId v : n.inputs) {
        types += fmt::format("{}{}", types.empty() ? "" : ", ", vt::ir::Name(g.value(v).dtype));
      }
      return base::Error{base::Code::kUnsupported,
                         fmt::format("{} has no kernel for '{}' ({} of {}); another --device, "
                                     "--dtype or --kv-cache-dtype may have",
                                     backend.Info().name, n.name, vt::ir::Name(n.op), types)};
    }
  }
  return {};
}

base::Result<OpenedModel> OpenModel(LoadOptions& options, const vt::ir::Target* target) {
  base::Result<std::unique_ptr<weights::Checkpoint>> checkpoint = OpenCheckpoint(options);
  if (!checkpoint) return checkpoint.error();
  const base::Status context = SettleContext(options, (*checkpoint)->config());
  if (!context) return context.error();
  return BuildGraphs(*std::move(checkpoint), options, target);
}

base::Result<std::unique_ptr<LoadedModel>> LoadModel(LoadOptions& options) {
  if (options.kv_cache_memory < 0) {
    return base::Error{base::Code::kInvalidArgument,
                       "--kv-cache-memory must be a number of bytes from 0 to 2^63"};
  }
  const bool length_asked = options.max_model_len > 0;
  auto model = std::make_unique<LoadedModel>();
  model->registry = vt::DeviceRegistry::Load(options.module_folders);
  const base::Result<std::pair<vt::Platform*, int>> device = model->registry.Find(options.device);
  if (!device) return device.error();
  vt::Platform& platform = *device->first;
  base::Result<std::unique_ptr<vt::Backend>> backend = platform.Open({.index = device->second,
                                                                      .threads = options.threads,
                                                                      .isa = options.isa,
                                                                      .dtype = options.dtype});
  if (!backend) return backend.error();
  model->backend = *std::move(backend);

  base::Result<OpenedModel> opened = OpenModel(options, model->backend.get());
  if (!opened) return opened.error();
  const weights::Checkpoint& checkpoint = *opened->checkpoint;
  model->config = checkpoint.config();
  model->graph = std::move(opened->graph);
  model->media_graph = std::move(opened->media);
  const bool hears = !model->media_graph.nodes.empty();
  model->encoder = IsEncoder(model->config);
  if (model->encoder && model->graph.hidden == vt::ir::kNone)
    model->classes = model->graph.value(model->graph.outputs[0]).shape.back().count;

  if (const base::Status s = SettleSnapshots(options, *model); !s) return s.error();
  WeightPlan laid_out;
  LayOutWeights(checkpoint, model->graph, *model->backend, laid_out);
  LayOutWeights(checkpoint, model->media_graph, *model->backend, laid_out);
  // A window that nobody leaves is none.
  const int64_t window = LongestWindow(model->graph);
  if (!model->encoder && window < options.max_model_len) model->window = window;
  model->layout = LayoutOf(*model, options.block_size);
  MemoryBudget budget = BudgetOf(*model, platform, laid_out.bytes, options, length_asked);
  if (options.max_num_seqs == 0) options.max_num_seqs = FitSequences(budget, kSequences);
  StepOptions steps = StepsOf(options, model->encoder, vt::UseGraphs(platform, *model->backend));
  StepPlans plans = MakeStepPlans(model->graph, *model->backend, steps);
  StepOptions media_steps;
  StepPlans media_plans;
  if (hears) {
    media_steps = MediaEncoder::Steps(model->config.audio, steps);
    media_plans = MakeStepPlans(model->media_graph, *model->backend, media_steps);
    if (const base::Status s = CheckSupported(media_plans, *model->backend); !s)
      return s.error().In(options.model);
  }
  budget.activations =
      plans.arena_bytes + plans.input_bytes + media_plans.arena_bytes + media_plans.input_bytes;
  // Rows of media, of which there is one a token of a step, and the encoder's own cache.
  for (const vt::ir::StateGroup& group : model->media_graph.state_groups) {
    budget.activations += StateCount(group, media_steps, media_plans.limits) * group.layers *
                          model->backend->StateBlockBytes(group, options.block_size);
  }
  for (const vt::ir::StateGroup& group : model->graph.state_groups) {
    if (group.name == vt::ir::kMediaGroup)
      budget.activations += StateCount(group, steps, plans.limits) * group.slot_bytes;
  }
  budget.max_num_seqs = options.max_num_seqs;
  budget.step_tokens = plans.limits.tokens;
  budget.slots *= steps.slots;
  if (model->recurrent() && options.enable_prefix_caching) {
    budget.snapshots = options.mamba_snapshots;
    budget.snapshot_every = options.mamba_block_size;
  }
  const base::Result<KvFit> fit = FitKvCache(budget);
  if (!fit) return fit.error().In(options.model);
  if (fit->max_model_len < options.max_model_len) {
    options.max_model_len = fit->max_model_len;
    std::set<std::string> used;
    base::Result<vt::ir::Graph> graph =
        BuildGraph(checkpoint, options, model->backend.get(),
                   weights::FamilyOf(model->config).build, !model->encoder, used);
    if (!graph) return graph.error();
    model->graph = *std::move(graph);
    plans = MakeStepPlans(model->graph, *model->backend, steps);
  }
  if (const base::Status s = CheckSupported(plans, *model->backend); !s)
    return s.error().In(options.model);
  steps.layout = model->layout;
  steps.kv_blocks = model->kv_blocks = fit->blocks;
  steps.window_blocks = model->window_blocks = fit->window_blocks;
  model->snapshots = fit->snapshots;
  steps.recurrent_slots += fit->snapshots;
  model->output_rows = plans.limits.outputs;
  model->sampler = SamplerOf(model->config, options);

  base::Result<TextParts> text = LoadText(options.model, options.chat_template,
                                          weights::FamilyOf(model->config).chat_template);
  if (!text) return text.error();
  model->tokenizer = std::move(text->tokenizer);
  model->chat_template = std::move(text->chat_template);
  model->why_no_template = std::move(text->why_no_template);
  model->eos_ids = EndIds(*model);
  const base::Result<Pooling> pooling =
      LoadPooling(checkpoint, options.model, model->encoder ? Pooling::kFirst : Pooling::kLast);
  if (!pooling) return pooling.error();
  model->pooling = *pooling;
  base::Result<ClassHead> head = LoadClassHead(options.model, model->classes);
  if (!head) return head.error();
  model->class_head = *std::move(head);

  const base::Status loaded = LoadWeights(checkpoint, options, laid_out, *model);
  if (!loaded) return loaded.error().In(options.model);
  base::Result<std::unique_ptr<StepRunner>> runner =
      StepRunner::Create(*model->backend, model->graph, std::move(plans), model->weights, steps);
  if (!runner) return runner.error().In(options.model);
  model->runner = *std::move(runner);
  if (hears) {
    base::Result<std::unique_ptr<StepRunner>> encoder = StepRunner::Create(
        *model->backend, model->media_graph, std::move(media_plans), model->weights, media_steps);
    if (!encoder) return encoder.error().In(options.model);
    model->media = std::make_unique<MediaEncoder>(model->config.audio, *std::move(encoder));
  }
  const StepRunner::Memory& m = model->runner->memory();
  model->memory = fmt::format("weights {}, KV cache {}, state {}, activations {}",
                              base::HumanBytes(static_cast<uint64_t>(m.weights)),
                              CacheSize(*model, options.block_size),
                              base::HumanBytes(static_cast<uint64_t>(m.state)),
                              base::HumanBytes(static_cast<uint64_t>(m.arena + m.inputs)));
  if (model->recurrent()) {
    model->memory += fmt::format(", recurrent state of {} requests and {} snapshots, {} each",
                                 options.max_num_seqs, model->snapshots,
                                 base::HumanBytes(static_cast<uint64_t>(budget.state)));
  }
  return model;
}

}  // namespace vllm::engine
