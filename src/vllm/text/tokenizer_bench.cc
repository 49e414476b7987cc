// How fast texts become ids:  text_bench <tokenizer.json or .json.gz or .vocab.gz> <text file>
// [seconds] One thread, CPU time; the text is encoded in one call, again and again, and in calls of
// 4 KiB.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/strings.h"
#include "vllm/text/text_golden.h"
#include "vllm/text/tokenizer.h"

namespace {

base::Result<std::unique_ptr<vllm::text::Tokenizer>> Load(const std::string& path) {
  if (base::EndsWith(path, ".vocab.gz")) {
    vllm::text::PackedVocab packed;
    if (!packed.Read(path))
      return base::Error{base::Code::kCorrupt, path + " is no packed vocabulary"};
    return vllm::text::Tokenizer::FromGguf(packed.vocab);
  }
  return vllm::text::Tokenizer::FromJson(vllm::text::ReadJsonGz(path));  // plain files are read too
}

// MB/s of encoding `text` in pieces of `piece` bytes.
double Measure(const vllm::text::Tokenizer& t, std::string_view text, size_t piece, double seconds,
               size_t* tokens) {
  const std::clock_t start =
      std::clock();  // of this process, so that neighbours on the machine don't count
  size_t bytes = 0;
  double elapsed = 0;
  do {
    *tokens = 0;
    for (size_t at = 0; at < text.size(); at += piece) {
      const auto ids = t.Encode(text.substr(at, piece), {.add_special_tokens = false});
      if (!ids.ok()) {
        std::fprintf(stderr, "%s\n", ids.error().message.c_str());
        std::exit(1);
      }
      *tokens += ids->size();
    }
    bytes += text.size();
    elapsed = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  } while (elapsed < seconds);
  return static_cast<double>(bytes) / elapsed / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: text_bench TOKENIZER TEXT [SECONDS]\n");
    return 2;
  }
  const auto t = Load(argv[1]);
  if (!t.ok()) {
    std::fprintf(stderr, "%s\n", t.error().message.c_str());
    return 1;
  }
  std::ifstream in(argv[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const double seconds = argc > 3 ? std::atof(argv[3]) : 2;
  size_t tokens = 0;
  for (const size_t piece : {text.size(), size_t{4096}}) {
    const double speed = Measure(**t, text, std::max<size_t>(piece, 1), seconds, &tokens);
    fmt::print("{} bytes in calls of {}: {} tokens, {:.1f} MB/s\n", text.size(), piece, tokens,
               speed);
  }
}
