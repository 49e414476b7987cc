// The recurrent state of sequences: which slot each step reads and writes, and where snapshots are.
#include <algorithm>
#include <limits>

#include "vllm/engine/scheduler.h"

namespace vllm::engine {
namespace {

// Snapshots of answers follow their ends, each in the place of the one before. There must be room
// for this beside those of prompts, or the two drive each other out.
constexpr int64_t kSnapshotsForAnswers = 4;  // a running sequence

// Where the same prompt, or one that goes on from it, can go on: its last token is always computed.
int64_t PromptEnd(const Sequence& s, int64_t block_size) {
  return (s.prompt_length - 1) / block_size * block_size;
}

}  // namespace

// Tokens until the next place of a snapshot in the prompt; pieces end there.
int64_t Scheduler::UntilSnapshot(const Sequence& s) const {
  if (s.embeds()) return std::numeric_limits<int64_t>::max();
  const int64_t every = options_.snapshot_every, end = PromptEnd(s, pool_.block_size());
  const int64_t next = (s.computed / every + 1) * every;
  return (s.computed < end ? std::min(next, end) : next) - s.computed;
}

// Whether the state behind so many tokens should be kept. An embedding's blocks are never
// published.
bool Scheduler::SnapshotAt(const Sequence& s, int64_t tokens) const {
  const int64_t size = pool_.block_size();
  if (snapshots_.count() == 0 || tokens % size != 0 || s.embeds()) return false;
  if (tokens % options_.snapshot_every == 0 || tokens == PromptEnd(s, size)) return true;
  return tokens >= s.prompt_length && snapshots_.count() >= kSnapshotsForAnswers * running();
}

// Holds the blocks of the longest prefix that can be gone on from: its windows' blocks must be
// there, and a snapshot behind it.
void Scheduler::FindPrefix(Sequence& s) {
  const PrefixNode root = s.node;
  const BlockPool::Match match =
      pool_.Find(root, std::span(s.tokens).first(s.tokens.size() - 1), s.blocks);
  const auto node = [&](int64_t block) {
    return pool_.NodeOf(s.blocks[static_cast<size_t>(block)]);
  };
  const auto has_state = [&](int64_t blocks) {
    if (options_.recurrent) s.recurrent = snapshots_.Find(node(blocks - 1));
    return !options_.recurrent || s.recurrent >= 0;
  };
  s.recurrent = -1;
  const int64_t blocks = windows_.Find(match.blocks, node, has_state, s.window);
  s.node = blocks > 0 ? node(blocks - 1) : root;
  snapshots_.Hold(s.recurrent);
  pool_.Release(s.blocks, blocks);
}

// The row reads what the step before it wrote, and takes over the sequence's hold on it.
void Scheduler::MoveState(Sequence& s, Scheduled& row) {
  row.state_read = s.recurrent;
  s.recurrent = s.slot;
  if (SnapshotAt(s, s.computed)) {
    const int32_t snapshot = snapshots_.Take();
    if (snapshot >= 0) {
      s.recurrent = snapshot;
      s.marks.push_back({snapshot, s.computed});  // has the hold of Take
      snapshots_.Hold(snapshot);                  // of the next row, which reads it
      snapshots_.Hold(snapshot);                  // of this row
    }
  }
  row.state_write = s.recurrent;
}

// The block that ends after `tokens` was published.
void Scheduler::KeepMark(Sequence& s, int64_t tokens) {
  const Sequence::Mark mark = s.marks.front();
  if (mark.tokens != tokens) return;
  s.marks.erase(s.marks.begin());
  const bool kept = snapshots_.Keep(s.node, mark.slot);
  if (tokens >= s.prompt_length && tokens % options_.snapshot_every != 0) {
    snapshots_.Forget(s.last_mark);
    s.last_mark = kept ? s.node : 0;
  }
  snapshots_.Release(mark.slot);
}

void Scheduler::DropState(Sequence& s) {
  snapshots_.Release(s.recurrent);
  s.recurrent = -1;
  for (const Sequence::Mark& mark : s.marks) snapshots_.Release(mark.slot);
  s.marks.clear();
}

}  // namespace vllm::engine
