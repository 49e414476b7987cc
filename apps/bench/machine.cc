#include "apps/bench/machine.h"

#include <ctime>

#include "base/strings.h"
#include "vt/device/registry.h"

namespace apps::bench {

std::string ProcessorText() {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load();
  std::string why;
  for (vt::Platform* p : registry.platforms()) {
    if (p->Name() != "cpu") continue;
    for (const vt::DeviceInfo& d : p->Devices(&why)) return d.description;
  }
  return "unknown processor";
}

std::string DeviceText(const std::string& device) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load();
  const auto found = registry.Find(device);
  if (!found) return device;
  std::string why;
  const std::vector<vt::DeviceInfo> devices = found->first->Devices(&why);
  const auto index = static_cast<size_t>(found->second);
  if (index >= devices.size()) return device;
  return fmt::format("{} ({})", devices[index].name, devices[index].description);
}

std::string DateText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

std::string CommandText(int argc, char** argv) {
  std::string out;
  bool secret = false;
  for (int i = 0; i < argc; ++i) {
    std::string word = argv[i];
    if (secret) word = "...";
    secret = word == "--api-key";
    if (base::StartsWith(word, "--api-key=")) word = "--api-key=...";
    if (word.empty() || word.find_first_of(" \t\n\"'\\$&|;<>(){}*?`") != std::string::npos) {
      std::string quoted = "'";
      for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      word = quoted + "'";
    }
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

}  // namespace apps::bench
