#include "apps/serving_flags.h"

#include <filesystem>
#include <istream>

#include "apps/model_flags.h"
#include "base/strings.h"
#include "vt/device/registry.h"

namespace apps {
namespace {

// A comment begins at the line's start or behind white space, outside quotes.
std::string_view WithoutComment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string Unquoted(std::string_view s) {
  s = base::Trimmed(s);
  if (s.size() >= 2 && (s[0] == '"' || s[0] == '\'') && s.back() == s[0]) {
    s = s.substr(1, s.size() - 2);
  }
  return std::string(s);
}

class YamlConfig : public CLI::Config {
 public:
  explicit YamlConfig(CLI::App& app) : app_(app) {}

  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

  // Sets the flags itself, so that what is wrong with a value is said with its line.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    for (const auto& [item, line] : Read(input)) {
      CLI::Option* flag = app_.get_option("--" + item.name);
      if (item.inputs.empty()) throw Bad(line, fmt::format("'{}' has no value", item.name));
      if (!flag->empty()) continue;  // the command line comes first
      try {
        if (flag->get_expected_min() == 0) {
          flag->add_result(flag->get_flag_value(item.name, to_flag(item)));
        } else {
          flag->add_result(item.inputs);
        }
        flag->run_callback();
      } catch (const CLI::ParseError& e) {
        throw Bad(line, e.what());
      }
    }
    return {};
  }

 private:
  using Line = std::pair<CLI::ConfigItem, int>;

  std::vector<Line> Read(std::istream& input) const {
    std::vector<Line> items;
    std::string line;
    for (int number = 1; std::getline(input, line); ++number) {
      const std::string_view text = base::Trimmed(WithoutComment(line));
      if (text.empty() || text == "---") continue;
      if (text[0] == '-' && (text.size() == 1 || text[1] == ' ')) {
        if (items.empty()) throw Bad(number, "a list without a name");
        items.back().first.inputs.push_back(Unquoted(text.substr(1)));
        continue;
      }
      const size_t colon = text.find(':');
      if (colon == std::string::npos) throw Bad(number, "expected 'name: value'");
      CLI::ConfigItem item;
      item.name = Unquoted(text.substr(0, colon));
      for (char& c : item.name) c = c == '_' ? '-' : c;
      const CLI::Option* flag = app_.get_option_no_throw("--" + item.name);
      if (flag == nullptr || !flag->get_configurable()) {
        throw Bad(number,
                  fmt::format("'{}' is no flag that a file can set", base::Printable(item.name)));
      }
      const std::string_view value = base::Trimmed(text.substr(colon + 1));
      if (!value.empty() && value[0] == '[' && value.back() == ']') {
        for (const std::string& v : base::Split(value.substr(1, value.size() - 2), ',')) {
          if (!base::Trimmed(v).empty()) item.inputs.push_back(Unquoted(v));
        }
      } else if (!value.empty()) {
        item.inputs.push_back(Unquoted(value));
      }
      items.emplace_back(std::move(item), number);
    }
    return items;
  }

  CLI::ConversionError Bad(int line, const std::string& what) const {
    const std::string file = app_.get_config_ptr()->as<std::string>();
    return CLI::ConversionError(fmt::format("--config: {}, line {}: {}", file, line, what));
  }

  CLI::App& app_;
};

bool GivenOnCommandLine(const std::string& flag, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag || base::StartsWith(word, flag + "=")) return true;
  }
  return false;
}

}  // namespace

void AddServingFlags(CLI::App& app, vllm::engine::LoadOptions& o) {
  const auto missing = [&](const char* name) { return app.get_option_no_throw(name) == nullptr; };
  if (missing("--max-num-seqs")) {
    o.max_num_seqs = 0;
    app.add_option("--max-num-seqs", o.max_num_seqs,
                   "Requests in a step (64; fewer where their states would take too much memory)")
        ->check(CLI::Range(1, 4096));
  }
  if (missing("--gpu-memory-utilization")) {
    app.add_option("--gpu-memory-utilization", o.gpu_memory_utilization,
                   "Share of the device's free memory that may be used")
        ->check(Within(0.01, 1))
        ->capture_default_str();
  }
  if (missing("--kv-cache-memory")) {
    app.add_option("--kv-cache-memory", o.kv_cache_memory,
                   "Bytes for cached keys and values (K, M, G may follow); 0: what is left")
        ->transform(CLI::AsSizeValue(false))
        ->capture_default_str();
  }
  if (missing("--enable-prefix-caching")) {
    app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", o.enable_prefix_caching,
                 "Keep the blocks of earlier prompts for later ones (the default)");
  }
  if (missing("--mamba-block-size")) {
    app.add_option("--mamba-block-size", o.mamba_block_size,
                   "Of models with recurrent layers: tokens between two snapshots of the state, "
                   "from which cached prompts go on (1024)")
        ->check(CLI::Range(64, 1 << 20));
  }
  if (missing("--mamba-snapshots")) {
    app.add_option("--mamba-snapshots", o.mamba_snapshots,
                   "How many of them are kept; 0: none, and no prefixes are found (by the memory "
                   "there is)")
        ->check(CLI::Range(0, 1 << 20));
  }
  if (missing("--scheduling-policy")) {
    app.add_option("--scheduling-policy", o.scheduling_policy,
                   "fcfs: first come first served; priority: by each request's priority")
        ->check(CLI::IsMember({"fcfs", "priority"}))
        ->capture_default_str();
  }
  if (missing("--max-queue-size")) {
    app.add_option("--max-queue-size", o.max_queue_size,
                   "Requests that may wait; more are answered with 429; 0: no limit")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  }
  if (missing("--enforce-eager")) {
    app.add_flag("--enforce-eager", o.enforce_eager, "No captured graphs");
  }
  if (missing("--cuda-graph-sizes")) {
    app.add_option("--cuda-graph-sizes", o.cuda_graph_sizes,
                   "Requests of the decode steps that are captured as graphs");
  }
  if (missing("--chat-template")) {
    app.add_option("--chat-template", o.chat_template,
                   "A Jinja file that replaces the model's own template");
  }
}

void AddConfigFlag(CLI::App& app) {
  app.set_config("--config", "", "A YAML file of flags: 'port: 8000' a line")
      ->check([](const std::string& path) -> std::string {
        std::error_code ec;
        return std::filesystem::is_regular_file(path, ec)
                   ? ""
                   : fmt::format("there is no file '{}'", base::Printable(path));
      });
  app.config_formatter(std::make_shared<YamlConfig>(app));
  app.allow_config_extras(CLI::config_extras_mode::error);
}

base::Status CheckGraphFlags(const vllm::engine::LoadOptions& options, int argc, char** argv) {
  for (const char* flag : {"--enforce-eager", "--cuda-graph-sizes"}) {
    if (!GivenOnCommandLine(flag, argc, argv)) continue;
    const vt::DeviceRegistry registry = vt::DeviceRegistry::Load(options.module_folders);
    const auto found = registry.Find(options.device);
    if (!found || found->first->support_static_graph_mode()) return {};  // loading says the rest
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("{} has no effect on {}, which captures no graphs: leave it out",
                                   flag, found->first->Name())};
  }
  return {};
}

}  // namespace apps
