// vllm-server as a program: flags, start-up, signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/os/file.h"
#include "net/net_testing.h"

namespace tests {
namespace {

namespace fs = std::filesystem;
using net::testing::RawSocket;

const std::string kTiny = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/llama_tied";

// A running vllm-server whose stderr is read line by line.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), std::string(VLLM_BINARY_DIR) + "/examples/vllm-server");
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], 2);
      ::close(ends[0]);
      ::close(ends[1]);
      ::alarm(120);  // whatever happens, it ends
      std::vector<char*> argv;
      for (std::string& a : arguments) argv.push_back(a.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    errors_ = ::fdopen(ends[0], "r");
  }
  ~Program() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      Wait();
    }
    std::fclose(errors_);
  }

  // Reads lines until one has `words`; "" at the end.
  std::string Until(const std::string& words) {
    char line[4096];
    while (std::fgets(line, sizeof line, errors_) != nullptr) {
      said_ += line;
      if (std::string(line).find(words) != std::string::npos) return line;
    }
    return "";
  }
  uint16_t Port() {
    const std::string line = Until("listening on");
    const size_t at = line.find("127.0.0.1:");
    return at == std::string::npos
               ? 0
               : static_cast<uint16_t>(std::atoi(line.c_str() + at + sizeof("127.0.0.1:") - 1));
  }
  void Signal(int signal) { ::kill(pid_, signal); }
  // The exit code, or 128 and the signal.
  int Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int End() {
    Until("\x01");
    return Wait();
  }
  const std::string& said() const { return said_; }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  FILE* errors_ = nullptr;
  std::string said_;
};

std::string File(const std::string& name, const std::string& text) {
  const std::string path =
      (fs::temp_directory_path() / ("vllm_" + std::to_string(::getpid()) + name)).string();
  std::ofstream(path) << text;
  return path;
}

void Refused(const std::vector<std::string>& arguments, int code, const std::string& words) {
  Program p(arguments);
  EXPECT_EQ(p.End(), code) << p.said();
  EXPECT_NE(p.said().find(words), std::string::npos) << p.said();
}

TEST(ServerProgram, RefusesBadFlagsWithTwo) {
  Refused({}, 2, "--model");
  Refused({"--model", kTiny, "--no-such-flag"}, 2, "--no-such-flag");
  Refused({"--model", kTiny, "--log-level", "loud"}, 2, "loud");
  Refused({"--model", kTiny, "--ssl-keyfile", "x"}, 2, "--ssl-certfile");
  Refused({"--model", kTiny, "--config", File("a.yaml", "no-such-name: 1\n")}, 2, "no-such-name");
  Refused({"--model", kTiny, "--config", File("b.yaml", "what is this\n")}, 2, "line 1");
}

TEST(ServerProgram, AModelThatCannotBeLoadedEndsWithOneSentence) {
  Refused({"--model", "/no/such/model", "--port", "0"}, 2, "/no/such/model");
}

// R43: the context does not fit.
TEST(ServerProgram, AContextThatDoesNotFitIsRefusedWithTheSum) {
  Refused({"--model", kTiny, "--port", "0", "--kv-cache-memory", "4096", "--max-model-len", "256"},
          1, "max-model-len");
}

TEST(ServerProgram, ServesByItsConfigAndEndsWhenTold) {
  const std::string config = File("c.yaml",
                                  "# a comment\nport: 0\nserved-model-name: [one, \"two\"]\n"
                                  "api-key:\n  - k1\n  - k2\nmax_num_seqs: 3\ndevice: cpu\n");
  Program p({kTiny, "--config", config});
  const uint16_t port = p.Port();
  ASSERT_NE(port, 0) << p.said();
  ASSERT_NE(p.Until("ready"), "") << p.said();
  RawSocket models(port);
  models.Send(net::testing::Get("/v1/models", "Authorization: Bearer k2\r\n"));
  const std::string body = net::testing::ReadAnswer(models).body;
  EXPECT_NE(body.find("\"one\""), std::string::npos) << body;
  EXPECT_NE(body.find("\"two\""), std::string::npos) << body;

  // An answer under way is finished, and the program ends with 0.
  RawSocket stream(port);
  stream.Send(net::testing::Post(
      "/v1/completions", R"({"prompt":"a","max_tokens":200,"ignore_eos":true,"stream":true})",
      "Content-Type: application/json\r\nAuthorization: Bearer k1\r\n"));
  stream.ReadUntil("data: ");
  p.Signal(SIGTERM);
  EXPECT_NE(stream.ReadUntil("[DONE]").find("[DONE]"), std::string::npos);
  EXPECT_EQ(p.End(), 0) << p.said();
}

TEST(ServerProgram, ASecondSignalEndsAtOnce) {
  Program p({kTiny, "--port", "0", "--device", "cpu"});
  const uint16_t port = p.Port();
  ASSERT_NE(p.Until("ready"), "") << p.said();
  std::vector<std::unique_ptr<RawSocket>> streams;  // enough work for a while
  for (int i = 0; i < 64; ++i) {
    streams.push_back(std::make_unique<RawSocket>(port));
    streams.back()->Send(net::testing::Post(
        "/v1/completions",
        R"({"prompt":"a","n":64,"max_tokens":250,"ignore_eos":true,"stream":true})",
        "Content-Type: application/json\r\n"));
  }
  streams.back()->ReadUntil("HTTP/1.1 200");
  p.Signal(SIGINT);
  ASSERT_NE(p.Until("a second signal"), "") << p.said();
  p.Signal(SIGINT);
  EXPECT_EQ(p.End(), 128 + SIGINT) << p.said();
}

}  // namespace
}  // namespace tests
