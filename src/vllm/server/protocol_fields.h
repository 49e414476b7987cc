// Every field of every request, and what becomes of it. Private to this room.
#pragma once

#include <span>

#include "vllm/server/fields.h"

namespace vllm::server {

std::span<const Field> ChatFields();
std::span<const Field> CompletionFields();
std::span<const Field> EmbeddingFields();
std::span<const Field> ClassifyFields();
std::span<const Field> ScoreFields();
std::span<const Field> RerankFields();
std::span<const Field> TokenizeFields();
std::span<const Field> DetokenizeFields();
std::span<const Field> StreamOptionFields();
std::span<const Field> MessageFields();

}  // namespace vllm::server
