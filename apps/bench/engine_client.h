// Requests to an engine in this process.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/bench/client.h"
#include "vllm/engine/engine.h"

namespace apps::bench {

class EngineClient : public Client, private vllm::engine::OutputSink {
 public:
  static base::Result<std::unique_ptr<EngineClient>> Load(vllm::engine::LoadOptions options);
  ~EngineClient() override { engine_.reset(); }

  vllm::engine::Engine& engine() { return *engine_; }
  RunRecord Run(const Work& work, const OnDone& on_done) override;

 private:
  using RequestId = vllm::engine::RequestId;
  EngineClient() = default;
  void Deliver(std::span<vllm::engine::Output> outputs) override;
  void EngineDied(const std::string& why) override;
  // Hands ended requests to `on_done`. REQUIRES: the lock, which is let go meanwhile.
  void TakeEnded(std::unique_lock<std::mutex>& lock, const OnDone& on_done);

  std::unique_ptr<vllm::engine::Engine> engine_;
  std::mutex mutex_;
  std::condition_variable ended_signal_;
  double began_ = 0;
  bool keep_ids_ = false;
  // The engine may deliver before Submit has told the id.
  std::unordered_map<RequestId, RequestRecord> records_;
  std::vector<RequestId> ended_;  // not yet taken
  int64_t under_way_ = 0;
  std::string died_;
};

}  // namespace apps::bench
