// vllm-quantize: a GGUF file of a model in the types of a mix.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include "apps/fetch_model.h"
#include "apps/model_flags.h"
#include "apps/quantize_vocab.h"
#include "base/os/module.h"
#include "base/strings.h"
#include "vllm/weights/checkpoint.h"
#include "vllm/weights/quantize.h"

namespace {

using base::Code;
using base::Error;
using base::Result;
using base::Status;
using vllm::weights::GgufKeys;
using vllm::weights::GgufTensor;
using vllm::weights::Mix;
using vllm::weights::TensorSource;

constexpr const char* kName = "vllm-quantize";

volatile std::sig_atomic_t interrupted = 0;

struct Flags {
  std::string model, revision, out, type = "Q4_K_M";
  int threads = 0;
  bool allow_requantize = false, dry_run = false;
};

// The output must be a file that is none of the input's.
Status CheckOut(const Flags& f, const TensorSource& source) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (fs::is_directory(f.out, ec)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("--out {}: is a folder; give the name of a .gguf file", f.out)};
  }
  if (fs::exists(f.out, ec) && !fs::is_regular_file(f.out, ec)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("--out {}: is no regular file, so it cannot be replaced", f.out)};
  }
  for (const std::string& file : source.files()) {
    if (fs::equivalent(file, f.out, ec) && !ec) {
      return Error{Code::kInvalidArgument,
                   fmt::format("--out {}: is the input itself; give another name", f.out)};
    }
  }
  const fs::path folder = fs::path(f.out).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ec)) {
    return Error{Code::kNotFound,
                 fmt::format("--out {}: there is no folder {}", f.out, folder.string())};
  }
  return {};
}

void PrintPlan(const TensorSource& source, const std::vector<GgufTensor>& plan) {
  std::map<std::string_view, std::pair<int, uint64_t>> types;
  double values = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    const GgufTensor& t = plan[i];
    const std::string shape = fmt::format("[{}]", fmt::join(t.shape, ", "));
    fmt::print("{:<40} {:<20} {:>6} -> {:<6} {:>10}\n", t.name, shape,
               vt::ir::Name(source.tensors()[i].dtype), vt::ir::Name(t.dtype),
               base::HumanBytes(t.bytes));
    auto& [count, sum] = types[vt::ir::Name(t.dtype)];
    ++count;
    sum += t.bytes;
    bytes += t.bytes;
    values += static_cast<double>(source.tensors()[i].Count());
  }
  for (const auto& [name, entry] : types)
    fmt::print("{:<8}{:>6} tensors {:>12}\n", name, entry.first, base::HumanBytes(entry.second));
  fmt::print("in all  {:>6} tensors {:>12}, {:.2f} bits a weight\n", plan.size(),
             base::HumanBytes(bytes), values > 0 ? 8 * static_cast<double>(bytes) / values : 0);
}

// Draws a bar on a terminal; stops at Ctrl-C.
std::function<bool(double)> Progress() {
  return [terminal = base::os::IsTerminal(2), last = -1](double share) mutable {
    const int percent = static_cast<int>(share * 100);
    if (terminal && percent != last) {
      last = percent;
      fmt::print(stderr, "\rquantising [{:<40}] {:3}%{}",
                 std::string(static_cast<size_t>(percent * 2 / 5), '#'), percent,
                 percent == 100 ? "\r\033[K" : "");
      std::fflush(stderr);
    }
    return interrupted == 0;
  };
}

Status Run(Flags& f) {
  Result<Mix> mix = Mix::FromName(f.type);
  if (!mix) return mix.error().In("--type");
  if (f.out.empty() && !f.dry_run)
    return Error{Code::kInvalidArgument, "--out is missing: the file to write (or --dry-run)"};
  vllm::engine::LoadOptions named;
  named.model = f.model;
  named.revision = f.revision;
  Status status = apps::FetchModel(named);
  if (!status) return status;
  Result<std::unique_ptr<TensorSource>> source = TensorSource::Open(named.model);
  if (!source) return source.error();
  if (!f.out.empty()) status = CheckOut(f, **source);
  if (!status) return status;
  Result<std::vector<GgufTensor>> plan =
      vllm::weights::PlanQuantization(**source, *mix, f.allow_requantize);
  if (!plan) return plan.error().In(named.model);

  GgufKeys keys = (*source)->keys();
  if (!(*source)->is_gguf()) {
    const Result<std::unique_ptr<vllm::weights::Checkpoint>> checkpoint =
        vllm::weights::Checkpoint::Open(named.model, {});
    if (!checkpoint) return checkpoint.error();
    status = apps::VocabToGguf((*checkpoint)->directory(), (*checkpoint)->config(),
                               (*source)->vocab_size(), keys);
    if (!status) return status;
  }
  keys.U32("general.file_type", mix->file_type());
  keys.U32("general.quantization_version", 2);  // of ggml's block formats: the present one
  const Result<uint64_t> bytes = vllm::weights::LayOutGguf(keys, *plan);
  if (!bytes) return bytes.error().In(named.model);
  if (f.dry_run) {
    PrintPlan(**source, *plan);
    return {};
  }
  const int threads = f.threads > 0
                          ? f.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  // A limit on the size of files is an error like a full disk, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  status = vllm::weights::WriteQuantized(**source, *plan, keys, f.out,
                                         {.threads = threads, .progress = Progress()});
  if (!status) return status;
  fmt::print("{}: {}, {} in {} tensors\n", f.out, mix->name(), base::HumanBytes(*bytes),
             plan->size());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Write a model as a GGUF file in fewer bits a weight, with llama.cpp's mixes and types.",
      kName);
  Flags f;
  app.add_option(
         "--model,-m", f.model,
         "What to read: a .gguf file in F32, F16 or BF16 (any part of a split one), a folder "
         "with config.json, tokenizer.json and *.safetensors, or the name of a model on the "
         "Hugging Face hub")
      ->required();
  app.add_option("--revision", f.revision, "Branch, tag or commit of a model by name");
  app.add_option(
      "--out,-o", f.out,
      "The .gguf file to write. An older file of this name is replaced once the new one is "
      "whole; the input is never overwritten");
  app.add_option(
         "--type", f.type,
         fmt::format("The mix of types: {}. A mix gives more bits to the tensors that need "
                     "them; rows that are no multiple of 256 values take a type of blocks of "
                     "32; norms and biases stay in F32",
                     fmt::join(Mix::Names(), ", ")))
      ->capture_default_str();
  app.add_option("--threads,-t", f.threads, "CPU threads; 0 means one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag(
      "--allow-requantize", f.allow_requantize,
      "Read tensors that are quantised already: what is rounded twice is worse than what is "
      "rounded once");
  app.add_flag("--dry-run", f.dry_run, "Print each tensor's type and size, and write nothing");
  if (const int code = apps::Parse(app, argc, argv); code >= 0) return code;
  const Status status = Run(f);
  return status ? 0 : apps::Fail(kName, status.error());
}
