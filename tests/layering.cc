#include "layering.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace layering {
namespace {

bool StartsWith(std::string_view s, std::string_view p) { return s.substr(0, p.size()) == p; }

struct Include {
  int line = 0;
  std::string path;
  bool quoted = false;
};

// #include lines, in any spacing that the preprocessor takes.
std::vector<Include> IncludesOf(const std::string& text) {
  std::vector<Include> out;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const auto skip_blanks = [&line](size_t at) {
      return std::min(line.find_first_not_of(" \t", at), line.size());
    };
    size_t at = skip_blanks(0);
    if (at == line.size() || line[at] != '#') continue;
    at = skip_blanks(at + 1);
    if (!StartsWith(std::string_view(line).substr(at), "include")) continue;
    at = skip_blanks(at + std::string_view("include").size());
    if (at == line.size() || (line[at] != '"' && line[at] != '<')) continue;
    const bool quoted = line[at] == '"';
    const size_t end = line.find(quoted ? '"' : '>', at + 1);
    if (end == std::string::npos) continue;
    out.push_back({number, line.substr(at + 1, end - at - 1), quoted});
  }
  return out;
}

// The room of a path from src/, or nullptr.
const Room* RoomOf(std::string_view path) {
  for (const Room& room : Rooms()) {
    if (StartsWith(path, room.folder)) return &room;
  }
  return nullptr;
}

// Path from src/ ("vt/ir/graph.h"), or from the root for apps ("apps/cli.cc").
std::string WithoutSrc(std::string_view path) {
  return std::string(StartsWith(path, "src/") ? path.substr(4) : path);
}

// What an include means, as a path from src/. Bare names are looked up beside the file that
// includes them. Empty: a header of the system or of a library.
std::string Resolve(const Tree& tree, const std::string& includer, const Include& include) {
  for (const std::string_view top : {"base/", "net/", "vt/", "vllm/", "api/", "apps/"}) {
    if (StartsWith(include.path, top)) return include.path;
  }
  if (!include.quoted) return "";
  const std::string beside = (std::filesystem::path(includer).parent_path() / include.path)
                                 .lexically_normal()
                                 .generic_string();
  return tree.count(beside) != 0 ? WithoutSrc(beside) : "?";
}

// Whether the file ends in a registration line, which makes it a model family.
bool IsFamily(const std::string& text) {
  return StartsWith(text, "VLLM_MODEL_FAMILY(") ||
         text.find("\nVLLM_MODEL_FAMILY(") != std::string::npos;
}

std::string Stem(const std::string& path) { return path.substr(0, path.rfind('.')); }

}  // namespace

const std::vector<Room>& Rooms() {
  // What engine and server may reach of models is the registry alone; a model reads its
  // configuration and weight names, not the loaders.
  static const std::vector<Room> rooms = {
      {"base/", {}},
      {"net/", {}},
      {"vt/ir/", {}},
      {"vt/device/", {"vt/ir/"}},
      {"vt/comm/", {"vt/ir/", "vt/device/"}},
      {"vt/cpu/", {"vt/ir/", "vt/device/", "vt/comm/"}},
      {"vt/null/", {"vt/ir/", "vt/device/"}},
      {"vt/gpu/", {"vt/ir/", "vt/device/", "vt/comm/"}},
      {"vt/vulkan/", {"vt/ir/", "vt/device/", "vt/comm/"}},
      {"vllm/weights/", {"vt/ir/"}},
      {"vllm/models/",
       {"vt/ir/", "vllm/weights/config.h", "vllm/weights/family.h", "vllm/weights/gguf_reader.h",
        "vllm/weights/virtual_tensors.h"}},
      {"vllm/text/", {}},
      {"vllm/grammar/", {}},
      {"vllm/audio/", {}},
      {"vllm/engine/",
       {"vt/ir/", "vt/device/", "vt/comm/", "vllm/weights/", "vllm/models/registry.h", "vllm/text/",
        "vllm/grammar/", "vllm/audio/"}},
      {"vllm/hub/", {"net/"}},
      {"vllm/server/", {"net/", "vllm/engine/", "vllm/text/", "vllm/grammar/"}},
      {"api/", {"vllm/engine/", "vllm/server/"}},
      {"apps/", {"base/", "net/", "vt/", "vllm/", "api/"}},
  };
  return rooms;
}

Tree ReadTree(const std::string& root, const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  static const std::set<std::string> kExtensions = {".h",   ".cc",  ".cpp", ".cu",
                                                    ".cuh", ".hip", ".inc", ".c"};
  Tree tree;
  for (const std::string& folder : folders) {
    const fs::path top = fs::path(root) / folder;
    if (!fs::is_directory(top)) continue;
    for (auto it = fs::recursive_directory_iterator(top); it != fs::recursive_directory_iterator();
         ++it) {
      if (it->is_directory() && it->path().filename() == "goldens") it.disable_recursion_pending();
      if (!it->is_regular_file() || kExtensions.count(it->path().extension().string()) == 0)
        continue;
      std::ifstream in(it->path(), std::ios::binary);
      std::ostringstream text;
      text << in.rdbuf();
      tree[fs::relative(it->path(), root).generic_string()] = text.str();
    }
  }
  return tree;
}

std::vector<std::string> CheckIncludes(const Tree& tree) {
  std::set<std::string> families;  // stems of model families, as paths from src/
  for (const auto& [path, text] : tree) {
    if (StartsWith(path, "src/vllm/models/") && IsFamily(text))
      families.insert(Stem(WithoutSrc(path)));
  }
  std::vector<std::string> findings;
  for (const auto& [path, text] : tree) {
    if (!StartsWith(path, "src/") && !StartsWith(path, "apps/")) continue;
    const std::string file = WithoutSrc(path);
    const Room* room = RoomOf(file);
    if (room == nullptr) {
      findings.push_back(
          path +
          ":1: belongs to no room of the table in tests/layering.cc: add the room or move it");
      continue;
    }
    for (const Include& include : IncludesOf(text)) {
      const std::string where = path + ":" + std::to_string(include.line) + ": ";
      const std::string target = Resolve(tree, path, include);
      if (target.empty()) continue;
      if (target == "?") {
        findings.push_back(where + "\"" + include.path +
                           "\" is no file here: write the path from src/, or <> for libraries");
        continue;
      }
      if (families.count(Stem(target)) != 0 && Stem(target) != Stem(file)) {
        findings.push_back(where + target +
                           " belongs to a model family, which nobody else may include");
        continue;
      }
      const bool own = StartsWith(target, room->folder);
      const bool base = StartsWith(target, "base/");
      const bool allowed =
          std::any_of(room->may_include.begin(), room->may_include.end(),
                      [&target](std::string_view p) { return StartsWith(target, p); });
      if (!own && !base && !allowed) {
        findings.push_back(where + std::string(room->folder) + " may not include " + target);
      }
    }
  }
  return findings;
}

std::vector<std::string> CheckLength(const Tree& tree, int limit) {
  std::vector<std::string> findings;
  for (const auto& [path, text] : tree) {
    const auto breaks = std::count(text.begin(), text.end(), '\n');
    const auto lines = breaks + (!text.empty() && text.back() != '\n' ? 1 : 0);
    if (lines > limit) {
      findings.push_back(path + ":" + std::to_string(lines) + ": more than " +
                         std::to_string(limit) + " lines: it is two ideas, make it two files");
    }
  }
  return findings;
}

}  // namespace layering
