// The places that a proposer has for sequences: a fixed number, each held by a sequence or by none.
#pragma once

#include <cstdint>
#include <vector>

namespace ibid {

// The place of this sequence; else the first one that nobody holds (`sequence` below 0); null where all are taken.
template <typename Text>
Text* place_of(std::vector<Text>& texts, int64_t sequence) {
  Text* unused = nullptr;
  for (Text& text : texts) {
    if (text.sequence == sequence) return &text;
    if (unused == nullptr && text.sequence < 0) unused = &text;
  }
  return unused;
}

// Of what is held of a sequence, for self_check(): the place of this sequence, or null.
template <typename Text>
const Text* held_place(const std::vector<Text>& texts, int64_t sequence) {
  for (const Text& text : texts) {
    if (text.sequence == sequence) return &text;
  }
  return nullptr;
}

}  // namespace ibid
