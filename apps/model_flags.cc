#include "apps/model_flags.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/os/module.h"
#include "base/strings.h"

namespace apps {

void AddModelFlags(CLI::App& app, vllm::engine::LoadOptions& o) {
  app.add_option(
         "--model,-m", o.model,
         "A .gguf file (any part of a split one), a folder with config.json, or the name of "
         "a model on the Hugging Face hub: org/name, org/name:Q4_K_M")
      ->required();
  app.add_option("--revision", o.revision, "Branch, tag or commit of a model by name");
  o.warn = [](const std::string& line) { fmt::print(stderr, "warning: {}\n", line); };
  o.device = VLLM_DEFAULT_DEVICE;  // the preset's
  app.add_option("--device", o.device,
                 "cpu, or a name and an index such as cuda:1; auto takes the best one found")
      ->capture_default_str();
  app.add_option("--threads,-t", o.threads, "CPU threads; 0 means one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option(
      "--isa", o.isa,
      "CPU instruction set, for comparing: scalar, avx2, avx512, ... (default: the best)");
  app.add_option("--dtype", o.dtype,
                 "auto: the device's own (CPU: weights as stored, values in f32; GPUs: bfloat16); "
                 "float16 (half), bfloat16: of GPUs; float32: everything in f32, for debugging")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "half", "float32"}))
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", o.kv_cache_dtype, "Type of cached keys and values")
      ->check(CLI::IsMember({"auto", "float16", "bfloat16", "float32", "fp8", "fp8_e4m3"}))
      ->capture_default_str();
  app.add_option("--load-format", o.load_format,
                 "dummy: random weights for a config.json alone, for measuring")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str();
  app.add_option("--quantization", o.quantization,
                 "Mix of dummy weights, as llama.cpp names them: Q4_K_M, Q8_0, ...");
  app.add_option(
         "--max-model-len", o.max_model_len,
         "Context in tokens; 0: what the model was made for, or less where memory holds less")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", o.max_num_batched_tokens,
                 "Tokens in a step; longer prompts go in pieces")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--block-size", o.block_size, "Tokens a KV block")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

std::function<std::string(const std::string&)> Within(double low, double high) {
  return [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && *end == '\0' && value >= low && value <= high) return "";
    return fmt::format("'{}' is not a number from {} to {}", base::Printable(text), low, high);
  };
}

int Fail(const std::string& program, const base::Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", program, error.message);
  return error.code == base::Code::kInvalidArgument ? 2 : 1;
}

namespace {

base::Error Unwritable(int reason) {
  const std::string why = reason == 0 ? "" : ": " + std::generic_category().message(reason);
  return {base::Code::kResourceExhausted, "the output cannot be written" + why};
}

}  // namespace

base::Status FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return Unwritable(errno);
}

int Run(const std::string& program, const std::function<int()>& body) {
  int code = 0;
  try {
    code = body();
  } catch (const std::exception& e) {
    // fmt throws the system's error when stdout takes no more.
    const auto* system = dynamic_cast<const std::system_error*>(&e);
    if (system == nullptr || std::ferror(stdout) == 0) {
      return Fail(program, {base::Code::kInternal, e.what()});
    }
    return Fail(program, Unwritable(system->code().value()));
  }
  if (code != 0) return code;
  const base::Status written = FlushOutput();
  return written ? 0 : Fail(program, written.error());
}

int Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    fmt::print(stderr, "{}: {} (--help lists the flags)\n", app.get_name(), e.what());
    return 2;
  }
  return -1;
}

void ShowProgress(vllm::engine::LoadOptions& options) {
  if (!base::os::IsTerminal(2)) return;
  options.progress = [last = -1](double fraction) mutable {
    const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
    if (percent == last) return;
    last = percent;
    fmt::print(stderr, "\rloading [{:<40}] {:3}%{}",
               std::string(static_cast<size_t>(percent * 2 / 5), '#'), percent,
               percent == 100 ? "\r\033[K" : "");
    std::fflush(stderr);
  };
}

}  // namespace apps
