#include "engine/record/recorded_disk.h"

#include <new>
#include <utility>

namespace ibid::record {

std::vector<DurableEntry> RecordingStore::take_found() {
  log_.facts = {.image_bytes = format().image_bytes(),
                .state_image_bytes = format().image_bytes(ImageKind::kState),
                .opened_at = opened_at(),
                .found = store_->take_found()};
  return log_.facts.found;
}

bool RecordingStore::note(DiskInput::Kind kind, bool was_taken) {
  try {
    log_.inputs.push_back({.kind = kind, .was_taken = was_taken});
  } catch (const std::bad_alloc&) {
  }
  return was_taken;
}

std::span<std::byte> RecordingStore::image_to_write(ImageKind kind) {
  const std::span<std::byte> image = store_->image_to_write(kind);
  note(DiskInput::Kind::kRoom, !image.empty());
  return image;
}

bool RecordingStore::write(const DurableKey& key, int64_t age, std::span<std::byte> image) {
  return note(DiskInput::Kind::kWrite, store_->write(key, age, image));
}

bool RecordingStore::read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) {
  return note(DiskInput::Kind::kRead, store_->read(key, age, ticket, kind));
}

void RecordingStore::collect(std::vector<Done>& done) {
  const size_t n_before = done.size();
  store_->collect(done);
  try {
    for (size_t i = n_before; i < done.size(); ++i) {
      const Done& d = done[i];
      const bool is_state = d.kind == ImageKind::kState;
      DiskInput input = {.kind = is_state ? DiskInput::Kind::kDoneState : DiskInput::Kind::kDone,
                         .is_read = d.is_read,
                         .outcome = d.outcome,
                         .ticket = d.ticket,
                         .seconds = d.seconds,
                         .key = d.key};
      if (d.is_read && d.outcome == BlockIo::kDone) {
        const std::span<const TokenId> tokens = tokens_of_image(d.image);
        input.parent = parent_of_image(d.image);
        input.tokens.assign(tokens.begin(), tokens.end());
      }
      log_.inputs.push_back(std::move(input));
    }
  } catch (const std::bad_alloc&) {
  }
}

ReplayStore::ReplayStore(const BlockFormat& format, DiskFacts facts)
    : format_(format),
      facts_(std::move(facts)),
      to_write_(static_cast<size_t>(format.image_bytes(ImageKind::kState))) {}

void ReplayStore::give(std::vector<DiskInput> inputs) {
  inputs_ = std::move(inputs);
  next_ = 0;
  is_off_ = false;
  read_.clear();
}

bool ReplayStore::answer(DiskInput::Kind kind) {
  if (next_ < inputs_.size() && inputs_[next_].kind == kind) return inputs_[next_++].was_taken;
  is_off_ = true;
  return false;
}

std::span<std::byte> ReplayStore::image_to_write(ImageKind kind) {
  if (!answer(DiskInput::Kind::kRoom)) return {};
  return std::span(to_write_).first(static_cast<size_t>(format_.image_bytes(kind)));
}

bool ReplayStore::write(const DurableKey&, int64_t, std::span<std::byte>) { return answer(DiskInput::Kind::kWrite); }

bool ReplayStore::read(const DurableKey&, int64_t, int64_t, ImageKind) { return answer(DiskInput::Kind::kRead); }

void ReplayStore::collect(std::vector<Done>& done) {
  for (; next_ < inputs_.size() && inputs_[next_].is_done(); ++next_) {
    const DiskInput& d = inputs_[next_];
    const ImageKind kind = d.kind == DiskInput::Kind::kDoneState ? ImageKind::kState : ImageKind::kBlock;
    Done& out = done.emplace_back(Done{.is_read = d.is_read,
                                       .kind = kind,
                                       .outcome = d.outcome,
                                       .key = d.key,
                                       .ticket = d.ticket,
                                       .seconds = d.seconds});
    if (!d.is_read || d.outcome != BlockIo::kDone) continue;
    const auto n_tokens = static_cast<int32_t>(d.tokens.size());
    const bool is_state = kind == ImageKind::kState && format_.state_bytes > 0;
    if (is_state ? n_tokens < 1 || n_tokens > format_.block_len : n_tokens != format_.block_len) {
      is_off_ = true;
      out.outcome = BlockIo::kForeign;
      continue;
    }
    out.image = read_.emplace_back(static_cast<size_t>(format_.image_bytes(kind)));
    begin_image(format_, out.image, d.key, d.parent, d.tokens);
  }
}

}  // namespace ibid::record
