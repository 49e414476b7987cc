// BERT and RoBERTa encoders: learned positions, tokens that see all others, a norm behind each
// residual. They end in hidden states, of which an embedding is made, or in scores of classes.
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;
using weights::Config;

constexpr const char* kClasses = "num_labels";     // 0: hidden states
constexpr const char* kTypes = "type_vocab_size";  // segments
constexpr const char* kPadding = "pad_token_id";

bool IsRoberta(const Config& c) { return c.family.find("roberta") != std::string::npos; }

ValueId Layer(Builder& b, const Config& c, const std::string& p, ValueId x) {
  const int64_t hd = c.head_dim;
  const auto heads = [&](const char* name) {
    return b.Heads(b.Linear(x, p + "attention.self." + name, c.num_heads * hd, true), c.num_heads,
                   hd);
  };
  const auto add_norm = [&](ValueId y, ValueId residual, const std::string& name) {
    return b.LayerNorm(b.Add(b.Linear(y, name + ".dense", c.hidden_size, true), residual),
                       name + ".LayerNorm.weight", name + ".LayerNorm.bias", c.rms_norm_eps);
  };
  const vt::ir::AttentionAttrs attention = {.heads = c.num_heads,
                                            .kv_heads = c.num_heads,
                                            .head_dim = hd,
                                            .scale = 1 / std::sqrt(static_cast<float>(hd)),
                                            .causal = false};
  const ValueId q = heads("query"), k = heads("key"), v = heads("value");
  x = add_norm(b.Attention(q, k, v, attention, p + "attention.self"), x, p + "attention.output");
  const ValueId h =
      b.Act(b.Linear(x, p + "intermediate.dense", c.intermediate_size, true), ActivationOf(b, c));
  return add_norm(h, x, p + "output");
}

ValueId BuildBert(Builder& b, const BuildContext& context) {
  const Config& c = context.config;
  const std::string e = "embeddings.";
  ValueId x = b.Embed(e + "word_embeddings.weight", c.vocab_size, c.hidden_size);
  x = b.Add(x, b.EmbedOf(e + "position_embeddings.weight", c.max_position_embeddings, c.hidden_size,
                         b.Positions()));
  x = b.Add(x, b.EmbedOf(e + "token_type_embeddings.weight", c.IntOption(kTypes), c.hidden_size,
                         b.TokenTypes()));
  x = b.LayerNorm(x, e + "LayerNorm.weight", e + "LayerNorm.bias", c.rms_norm_eps);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    x = Layer(b, c, fmt::format("encoder.layer.{}.", layer), x);
  x = b.OutputOnly(x);
  const int64_t classes = c.IntOption(kClasses);
  if (classes == 0) {
    b.MarkHidden(x);
    return x;
  }
  const std::string head = IsRoberta(c) ? "classifier." : "pooler.";
  x = b.Act(b.Linear(x, head + "dense", c.hidden_size, true), vt::ir::Activation::kTanh);
  return b.Linear(x, IsRoberta(c) ? head + "out_proj" : "classifier", classes, true);
}

base::Status ReadJson(const boost::json::object& o, Config& c) {
  const auto unsupported = [&](std::string what) {
    return base::Error{base::Code::kUnsupported, what + " is not implemented for " + c.family};
  };
  const base::Result<std::string> positions =
      base::JsonString(o, "position_embedding_type", "absolute");
  if (!positions) return positions.error();
  if (*positions != "absolute")
    return unsupported(fmt::format("position_embedding_type '{}'", base::Printable(*positions)));
  const base::Result<bool> decoder = base::JsonBool(o, "is_decoder", false);
  if (!decoder) return decoder.error();
  if (*decoder) return unsupported("is_decoder = true");
  c.options[kClasses] = 0;
  if (c.family.ends_with("_classifier")) {
    const boost::json::value* labels = o.if_contains("id2label");
    const auto count = labels != nullptr && labels->is_object()
                           ? static_cast<int64_t>(labels->get_object().size())
                           : 2;  // transformers' default
    const base::Result<int64_t> classes = base::JsonInt(o, kClasses, count);
    if (!classes) return classes.error();
    if (*classes < 1 || *classes > 1 << 20)
      return base::Error{base::Code::kCorrupt,
                         fmt::format("num_labels is {}: it must be at least 1", *classes)};
    c.options[kClasses] = static_cast<double>(*classes);
  }
  // RoBERTa counts positions from behind the padding token's id.
  if (IsRoberta(c)) c.max_position_embeddings -= c.IntOption(kPadding) + 1;
  return {};
}

// As its converter writes all of them: without a head, RoBERTa's positions counted from 0.
void ReadGguf(weights::GgufReader& r, Config& c) {
  const base::Result<int64_t> types = r.metadata().Int("tokenizer.ggml.token_type_count");
  if (!types) {
    r.Fail(types.error());
    return;
  }
  if (*types < 1 || *types > 1 << 20)
    r.Fail({base::Code::kCorrupt,
            fmt::format("metadata key 'tokenizer.ggml.token_type_count' is {}", *types)});
  c.options[kTypes] = static_cast<double>(*types);
  c.options[kClasses] = 0;
}

// RoBERTa's table of positions without the rows that no token has.
base::Status MakeTensors(const Config& c, int64_t layer, weights::LayerTensors& t) {
  if (layer != 0 || !IsRoberta(c)) return {};
  const int64_t skipped = c.IntOption(kPadding) + 1, width = c.hidden_size;
  const std::string table = "embeddings.position_embeddings.weight";
  weights::LayerTensors file(t.tensors(), "");
  return file.View(table, {c.max_position_embeddings + skipped, width},
                   {{table, skipped * width, {c.max_position_embeddings, width}, {width, 1}}});
}

weights::Family Encoder(std::string_view name, std::string_view architecture, std::string_view type,
                        std::string_view prefix) {
  weights::Family f = {.name = name,
                       .architecture = architecture,
                       .model_type = type,
                       .heads = 12,
                       .vocab_size = 30522,
                       .max_position_embeddings = 512,
                       .activation = "gelu",
                       .eps_key = "layer_norm_eps",
                       .eps = 1e-12,
                       .encoder = true,
                       .options = {{.json = kTypes, .fallback = 2, .least = 1}},
                       .read_json = ReadJson,
                       .layers = "encoder.layer.",
                       .renames = {{prefix, ""}, {".gamma", ".weight"}, {".beta", ".bias"}},
                       .ignored = {"embeddings.position_ids", "embeddings.token_type_ids"},
                       .make_tensors = MakeTensors};
  if (name == "bert") {
    f.gguf = name;
    f.read_gguf = ReadGguf;
    f.names = {{"attn_q", "attention.self.query"},
               {"attn_k", "attention.self.key"},
               {"attn_v", "attention.self.value"},
               {"attn_output", "attention.output.dense"},
               {"attn_output_norm", "attention.output.LayerNorm"},
               {"ffn_up", "intermediate.dense"},
               {"ffn_down", "output.dense"},
               {"layer_output_norm", "output.LayerNorm"}};
    f.file_names = {{"token_embd", "embeddings.word_embeddings"},
                    {"position_embd", "embeddings.position_embeddings"},
                    {"token_types", "embeddings.token_type_embeddings"},
                    {"token_embd_norm", "embeddings.LayerNorm"}};
  }
  if (prefix == "roberta.") {
    f.options.push_back({.json = kPadding, .fallback = 1});
    f.vocab_size = 50265;
    f.eps = 1e-5;
  }
  // Of the head that guesses the next sentence, which embeddings have no use for.
  if (architecture.ends_with("Model"))
    f.ignored.insert(f.ignored.end(), {"pooler.dense.weight", "pooler.dense.bias"});
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(bert, BuildBert, Encoder("bert", "BertModel", "bert", "bert."),
                  Encoder("bert_classifier", "BertForSequenceClassification", "bert", "bert."),
                  Encoder("roberta", "RobertaModel", "roberta", "roberta."),
                  Encoder("roberta_classifier", "RobertaForSequenceClassification", "roberta",
                          "roberta."),
                  Encoder("xlm_roberta", "XLMRobertaModel", "xlm-roberta", "roberta."),
                  Encoder("xlm_roberta_classifier", "XLMRobertaForSequenceClassification",
                          "xlm-roberta", "roberta."))

}  // namespace vllm::models
