// Model families. Each family is one file that says what is computed, how files describe it
// (weights/family.h), and ends with one registration line:
//
//   VLLM_MODEL_FAMILY(llama, BuildLlama, Llama(), Mistral())
//
// Registration objects live in an OBJECT library, so that no linker drops them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vllm/weights/family.h"
#include "vt/ir/builder.h"

namespace vllm::models {

using weights::BuildContext;
using weights::BuildFunction;

class Registration {
 public:
  Registration(BuildFunction build, std::vector<weights::Family> families);
};

// The function of a family. Errors: kUnsupported, naming the families that exist.
base::Result<BuildFunction> FindFamily(const std::string& family);
std::vector<std::string> FamilyNames();  // sorted

#define VLLM_MODEL_FAMILY(id, build, ...) \
  static const ::vllm::models::Registration registration_##id(build, {__VA_ARGS__});

}  // namespace vllm::models
