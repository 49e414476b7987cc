// From a checkpoint to a graph and weights in the layouts that the device wants.
#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/models/registry.h"
#include "vt/ir/quant.h"

namespace vllm::engine {
namespace {

using vt::ir::DType;

// A context that is not asked for stays within this, so that a model made for a million tokens
// starts on a laptop.
constexpr int64_t kDefaultContext = 8192;

// The type in which a tensor is held: vectors (norms, biases) always in f32, matrices as stored
// unless f32 is asked for.
DType HeldType(const weights::TensorInfo& info, const LoadOptions& options) {
  if (info.shape.size() < 2 || options.dtype == "float32") return DType::kF32;
  return info.dtype;
}

base::Status SettleContext(LoadOptions& options, const weights::Config& config) {
  int64_t own = config.max_position_embeddings;
  // Dynamic rope is for going beyond the trained length, up to the factor.
  if (config.rope.type == "dynamic")
    own = static_cast<int64_t>(static_cast<double>(own) * config.rope.factor);
  if (options.max_model_len > own) {
    return base::Error{
        base::Code::kInvalidArgument,
        fmt::format("--max-model-len {} is over the {} tokens that the model was made for",
                    options.max_model_len, own)};
  }
  if (options.max_model_len == 0) options.max_model_len = std::min(own, kDefaultContext);
  options.max_num_batched_tokens =
      std::min(options.max_num_batched_tokens, options.max_model_len * options.max_num_seqs);
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
      if (node.op == vt::ir::Op::kLinear && v.shape.size() == 2) use = vt::ir::WeightUse::kLinear;
      vt::ir::WeightUse& known = uses[v.name];
      known = std::max(known, use);
    }
  }
  return uses;
}

// `count` values of any stored type, from bytes that may not be aligned.
std::vector<float> ToFloats(DType type, std::span<const std::byte> bytes, int64_t count) {
  std::vector<std::byte> aligned(bytes.begin(), bytes.end());
  std::vector<float> out(static_cast<size_t>(count));
  vt::ir::Dequantize(type, aligned.data(), out.data(), count);
  return out;
}

base::Status LoadWeights(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                         LoadedModel& model) {
  const std::map<std::string, vt::ir::WeightUse> uses = UsesOf(model.graph);
  size_t done = 0;
  int64_t values = 0, bytes = 0;
  for (const auto& [name, use] : uses) {
    const weights::TensorInfo& info = *checkpoint.Find(name);
    int64_t count = 1;
    for (const int64_t n : info.shape) count *= n;
    const int64_t columns = info.shape.empty() ? 1 : info.shape.back();
    const DType held = HeldType(info, options);
    vt::DeviceWeight weight{.format = held};
    weight.layout =
        model.backend->LayoutFor(held, count / std::max<int64_t>(columns, 1), columns, use);
    base::Result<void*> memory = model.backend->Allocate(std::max<int64_t>(weight.layout.bytes, 1));
    if (!memory) return memory.error().In("weight '" + name + "'");
    weight.data = *memory;
    model.weights[name] = weight;

    const base::Result<std::span<const std::byte>> data = checkpoint.Data(name);
    if (!data) return data.error();
    vt::WeightView view{.data = data->data(),
                        .format = held,
                        .rows = columns == 0 ? 0 : count / columns,
                        .columns = columns};
    std::vector<float> floats;
    if (held != info.dtype) {
      floats = ToFloats(info.dtype, *data, count);
      view.data = reinterpret_cast<const std::byte*>(floats.data());
    }
    const base::Status repacked = model.backend->Repack(view, weight.layout, weight.data);
    if (!repacked) return repacked.error().In("weight '" + name + "'");
    checkpoint.DropPages(name);
    values += count;
    bytes += weight.layout.bytes;
    if (options.progress)
      options.progress(static_cast<double>(++done) / static_cast<double>(uses.size()));
  }
  model.description = fmt::format("{}, {} layers, {:.1f} M weights in {}", model.config.family,
                                  model.config.num_hidden_layers, static_cast<double>(values) / 1e6,
                                  base::HumanBytes(static_cast<uint64_t>(bytes)));
  return {};
}

}  // namespace

LoadedModel::~LoadedModel() {
  for (const auto& [name, weight] : weights) backend->Free(weight.data);
}

base::Result<OpenedModel> OpenModel(LoadOptions& options) {
  if (!options.quantization.empty() && options.load_format != "dummy") {
    return base::Error{base::Code::kInvalidArgument,
                       "--quantization only makes dummy weights: give --load-format dummy with it, "
                       "or a quantised file"};
  }
  base::Result<std::unique_ptr<weights::Checkpoint>> opened = weights::Checkpoint::Open(
      options.model,
      {.dummy = options.load_format == "dummy", .quantization = options.quantization});
  if (!opened) return opened.error();
  OpenedModel out;
  out.checkpoint = *std::move(opened);
  weights::Checkpoint& checkpoint = *out.checkpoint;
  const weights::Config& config = checkpoint.config();
  const base::Status context = SettleContext(options, config);
  if (!context) return context.error();
  const base::Result<models::BuildFunction> build = models::FindFamily(config.family);
  if (!build) return build.error();

  const bool f32_state = options.kv_cache_dtype == "float32" ||
                         (options.kv_cache_dtype == "auto" && options.dtype == "float32");
  vt::ir::Builder builder(config.family,
                          [&](const std::string& name) -> std::optional<vt::ir::WeightInfo> {
                            const weights::TensorInfo* info = checkpoint.Find(name);
                            if (info == nullptr) return std::nullopt;
                            return vt::ir::WeightInfo{HeldType(*info, options), info->shape};
                          },
                          {.dtype = f32_state ? DType::kF32 : DType::kF16,
                           .block_size = options.block_size,
                           .max_model_len = options.max_model_len});
  const vt::ir::ValueId logits = (*build)(builder, {config, options.max_model_len});
  const vt::ir::ValueId token =
      builder.Emit(vt::ir::Op::kSample, "sample", {logits, builder.SampleParams()});
  base::Result<vt::ir::Graph> graph = builder.Finish({logits, token});
  if (!graph) return graph.error().In(options.model);
  out.graph = *std::move(graph);
  const base::Status used = CheckAllUsed(checkpoint, builder.used());
  if (!used) return used.error().In(options.model);
  return out;
}

base::Result<std::unique_ptr<LoadedModel>> LoadModel(LoadOptions& options) {
  base::Result<OpenedModel> opened = OpenModel(options);
  if (!opened) return opened.error();
  auto model = std::make_unique<LoadedModel>();
  model->config = opened->checkpoint->config();
  model->graph = std::move(opened->graph);

  base::Result<TextParts> text = LoadText(options.model, options.chat_template);
  if (!text) return text.error();
  model->tokenizer = std::move(text->tokenizer);
  model->chat_template = std::move(text->chat_template);
  model->eos_ids = model->config.eos_token_ids;
  if (model->tokenizer != nullptr) {
    if (const auto eos = model->tokenizer->eos_id()) model->eos_ids.push_back(*eos);
    // Ends of a turn that published GGUF files do not list as end tokens.
    for (const char* name :
         {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|eom_id|>"}) {
      const auto id = model->tokenizer->TokenId(name);
      if (id && model->tokenizer->IsSpecial(*id)) model->eos_ids.push_back(*id);
    }
  }

  model->registry = vt::DeviceRegistry::Load(options.module_folders);
  const base::Result<std::pair<vt::Platform*, int>> device = model->registry.Find(options.device);
  if (!device) return device.error();
  base::Result<std::unique_ptr<vt::Backend>> backend = device->first->Open(
      {.index = device->second, .threads = options.threads, .isa = options.isa});
  if (!backend) return backend.error();
  model->backend = *std::move(backend);
  const base::Status loaded = LoadWeights(*opened->checkpoint, options, *model);
  if (!loaded) return loaded.error().In(options.model);
  return model;
}

}  // namespace vllm::engine
