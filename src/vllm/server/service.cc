#include "vllm/server/service.h"

#include <algorithm>
#include <ctime>

#include "base/os/socket.h"
#include "base/strings.h"

namespace vllm::server {

Service::Service(ServiceOptions options, const Log& log)
    : options_(std::move(options)), log_(log), started_(std::time(nullptr)) {
  for (int i = 0; i < std::max(1, options_.output_threads); ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    Lane& lane = *lanes_.back();
    lane.thread = std::thread([this, &lane] {
      base::os::NameThread("vllm-output");
      RunLane(lane);
    });
  }
  workers_ = std::make_unique<Workers>(options_.prepare_threads, options_.max_waiting_bytes);
}

Service::~Service() { Stop(); }

void Service::Stop() {
  workers_->Stop();
  for (const auto& lane : lanes_) {
    if (!lane->thread.joinable()) continue;
    {
      const std::lock_guard lock(lane->mutex);
      lane->stop = true;
    }
    lane->wake.notify_all();
    lane->thread.join();
  }
}

void Service::Ready(std::unique_ptr<ServedModel> model) {
  model_ = std::move(model);
  uint32_t hash = 2166136261u;  // FNV-1a: the same model and settings, the same fingerprint
  for (const char c : model_->description() + std::to_string(model_->max_model_len())) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  fingerprint_ = fmt::format("fp_{:08x}", hash);
  tool_format_ = options_.tools;
  if (!tool_format_ && options_.auto_tools && model_->chat_template() != nullptr) {
    tool_format_ = ToolFormatOf(model_->chat_template()->source());
  }
  State starting = State::kStarting;
  state_.compare_exchange_strong(starting, State::kReady);
}

void Service::Draining() {
  State s = state_.load();
  while (s != State::kDead && !state_.compare_exchange_weak(s, State::kDraining)) {
  }
}

void Service::CountConnections(std::function<int64_t()> count) { connections_ = std::move(count); }

size_t Service::sessions() const {
  const std::lock_guard lock(sessions_mutex_);
  return sessions_.size();
}

std::optional<ToolFormat> Service::tool_format() const { return tool_format_; }

void Service::EngineDied(const std::string& why) {
  death_ = why;
  state_ = State::kDead;
  log_.Error("the engine cannot go on: " + why);
  if (options_.on_engine_death) options_.on_engine_death();
}

// On the engine's thread: sorts by lane and wakes each once.
void Service::Deliver(std::span<engine::Output> outputs) {
  const size_t n = lanes_.size();
  for (size_t i = 0; i < n; ++i) {
    Lane& lane = *lanes_[i];
    bool any = false;
    {
      const std::lock_guard lock(lane.mutex);
      for (engine::Output& o : outputs) {
        if (o.request % n != i) continue;
        lane.outputs.push_back(std::move(o));
        any = true;
      }
    }
    if (any) lane.wake.notify_one();
  }
}

void Service::RunLane(Lane& lane) {
  std::vector<engine::Output> batch;
  while (true) {
    {
      std::unique_lock lock(lane.mutex);
      lane.wake.wait(lock, [&] { return lane.stop || !lane.outputs.empty(); });
      if (lane.stop) return;
      batch.swap(lane.outputs);
    }
    HandOut(batch);
    batch.clear();
  }
}

void Service::HandOut(std::vector<engine::Output>& outputs) {
  std::vector<Place> places(outputs.size());
  {
    const std::lock_guard lock(sessions_mutex_);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto found = sessions_.find(outputs[i].request);
      if (found != sessions_.end()) places[i] = found->second;  // else its client has left
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (places[i].session == nullptr) continue;
    Session& s = *places[i].session;
    const std::lock_guard lock(s.mutex);
    if (s.ended) continue;
    try {
      if (s.Take(places[i].part, outputs[i])) {
        model_->Cancel(outputs[i].request, outputs[i].choice);
      }
    } catch (const std::exception& e) {  // out of memory: this request's end, not the server's
      s.FailWith(e.what());
    }
  }
  std::shared_ptr<Session> last;
  for (const Place& place : places) {
    if (place.session == nullptr || place.session == last) continue;
    last = place.session;
    std::vector<engine::RequestId> over;
    {
      const std::lock_guard lock(last->mutex);
      try {
        last->Flush();  // does nothing the second time
      } catch (const std::exception& e) {
        last->FailWith(e.what());
      }
      if (last->ended) over = std::exchange(last->ids, {});
    }
    if (!over.empty()) Forget(over);
  }
}

// The engine has forgotten finished ones itself; Cancel ignores those.
void Service::Forget(const std::vector<engine::RequestId>& ids) {
  for (const engine::RequestId id : ids) model_->Cancel(id, -1);
  const std::lock_guard lock(sessions_mutex_);
  for (const engine::RequestId id : ids) sessions_.erase(id);
}

void Service::Leave(const std::shared_ptr<Session>& session) {
  std::vector<engine::RequestId> ids;
  {
    const std::lock_guard lock(session->mutex);
    if (session->ended) return;
    session->ended = true;
    session->reply().Gone();
    ids = std::exchange(session->ids, {});
  }
  Forget(ids);
}

void Service::Submit(const std::shared_ptr<Session>& session, std::vector<engine::Request> requests,
                     std::string_view field) {
  // Called at once when the client has left already: so not under the session's mutex.
  session->reply().exchange().OnGone([this, weak = std::weak_ptr<Session>(session)] {
    if (const std::shared_ptr<Session> s = weak.lock()) Leave(s);
  });
  std::optional<ApiError> failed;
  std::vector<engine::RequestId> taken;
  {
    const std::lock_guard lock(session->mutex);
    if (session->ended) return;
    for (size_t part = 0; part < requests.size() && !failed; ++part) {
      requests[part].timeout_seconds = options_.request_timeout;
      const base::Status submitted =
          model_->Submit(std::move(requests[part]), [&](engine::RequestId id) {
            const std::lock_guard map_lock(sessions_mutex_);
            sessions_[id] = {session, part};
            session->ids.push_back(id);
          });
      if (submitted) continue;
      failed = FromError(submitted.error());
      // The engine calls every prompt that.
      if (failed->param == "prompt" && field != "prompt") {
        failed->param = field;
        failed->message.replace(0, std::string_view("prompt").size(), field);
      }
    }
    if (failed) {
      session->ended = true;
      taken = std::exchange(session->ids, {});
      session->reply().Error(*failed);
    } else {
      session->Begin();
    }
  }
  if (!taken.empty()) Forget(taken);
}

}  // namespace vllm::server
