// Model families. Each family is one file that says what is computed and ends with one registration
// line:
//
//   VLLM_MODEL_FAMILY(llama, BuildLlama, "llama", "mistral")
//
// Registration objects live in an OBJECT library, so that no linker drops them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vt/ir/builder.h"

namespace vllm::models {

// What a family's file is given beside the configuration.
struct BuildContext {
  const weights::Config& config;
  int64_t max_model_len;  // tokens; dynamic rope scaling depends on it
};

// Emits the forward pass and returns the logits [O, vocab]. Problems go to Builder::Fail.
using BuildFunction = vt::ir::ValueId (*)(vt::ir::Builder& b, const BuildContext& context);

class Registration {
 public:
  Registration(BuildFunction build, std::initializer_list<const char*> families);
};

// The function of a family. Errors: kUnsupported, naming the families that exist.
base::Result<BuildFunction> FindFamily(const std::string& family);
std::vector<std::string> FamilyNames();  // sorted

#define VLLM_MODEL_FAMILY(id, build, ...) \
  static const ::vllm::models::Registration registration_##id(build, {__VA_ARGS__});

}  // namespace vllm::models
