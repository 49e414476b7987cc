#include "tests/hip/emulator.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/strings.h"
#include "tests/hip/device_memory.h"

extern char** environ;

namespace hip {

bool Emulator::Wanted() {
  const char* folder = std::getenv("TINYGRAD");
  return folder != nullptr && folder[0] != '\0';
}

Emulator::~Emulator() {
  if (process_ == 0) return;
  std::fclose(to_);  // the end of its input: it saves what it has compiled and leaves
  std::fclose(from_);
  int status = 0;
  waitpid(process_, &status, 0);
}

std::string Emulator::Start() {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return "no pipe";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const char* python = std::getenv("PYTHON");
  if (python == nullptr) python = "python3";
  const std::string script = VLLM_SOURCE_DIR "/tools/amd_emulator.py";
  const char* arguments[] = {python, script.c_str(), nullptr};
  const int failed = posix_spawnp(&process_, python, &actions, nullptr,
                                  const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  if (failed != 0) {
    process_ = 0;
    return fmt::format("{} does not start: {}", python, std::strerror(failed));
  }
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
  return Ask(fmt::format("memory {} {} {}", memory_.file(),
                         reinterpret_cast<uintptr_t>(memory_.base()), memory_.mapped_bytes()));
}

std::string Emulator::Ask(const std::string& request) {
  if (process_ == 0) {
    if (std::string failed = Start(); !failed.empty()) return failed;
  }
  std::fprintf(to_, "%s\n", request.c_str());
  std::fflush(to_);
  char line[4096];
  if (std::fgets(line, sizeof line, from_) == nullptr) return "the emulator has ended";
  std::string answer = line;
  if (!answer.empty() && answer.back() == '\n') answer.pop_back();
  return answer.starts_with("ok") ? "" : answer;
}

std::string Emulator::Load(int id, const std::string& file) {
  return Ask(fmt::format("load {} {}", id, file));
}
std::string Emulator::Unload(int id) { return Ask(fmt::format("unload {}", id)); }
std::string Emulator::Launch(int id, const std::string& kernel, const Shape& s,
                             const void* arguments) {
  return Ask(fmt::format("launch {} {} {} {} {} {} {}", id, kernel, s.grid_x, s.grid_y, s.threads,
                         s.shared_bytes, reinterpret_cast<uintptr_t>(arguments)));
}

}  // namespace hip
