// SentencePiece's BPE as GGUF files carry it: two neighbours may be merged when their text is a
// token, the token with the highest score first (Kudo and Richardson, arXiv:1808.06226).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/text/model.h"
#include "vllm/text/safe_cuts.h"
#include "vllm/text/vocab.h"

namespace vllm::text {

class SpmModel : public Model {
 public:
  // `vocab` must outlive the model. `control[id]`: text never becomes this id. `scores`: one an id.
  static base::Result<std::unique_ptr<SpmModel>> Create(const Vocab& vocab,
                                                        const std::vector<float>& scores,
                                                        const std::vector<uint8_t>& control,
                                                        int32_t unk_id);
  base::Status Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                      std::vector<int32_t>* out) const override;

 private:
  explicit SpmModel(const Vocab& vocab) : vocab_(vocab) {}
  base::Status EncodePiece(std::string_view text, Span piece, Scratch* scratch) const;

  const Vocab& vocab_;
  std::vector<uint32_t> ranks_;  // small is merged first; kNever for control tokens
  std::array<int32_t, 256> byte_ids_{};
  int32_t unk_id_ = -1;
  SafeCuts cuts_;
  bool cut_ = true;
};

}  // namespace vllm::text
