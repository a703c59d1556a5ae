#include "text/tokenizer/scratch.h"

#include <memory>
#include <utility>

namespace ibid {

void EncodeScratch::trim() {
  constexpr size_t kKeep = size_t{1} << 14;
  bpe.trim(kKeep);
  auto cut = [](auto& v) {
    if (v.capacity() <= 4 * kKeep) return;
    v.clear();
    v.shrink_to_fit();
  };
  cut(repaired), cut(normalized[0]), cut(normalized[1]), cut(best_score), cut(best_begin), cut(best_id);
  cut(spelled), cut(unmerged);
  for (std::string& text : step_text) cut(text);
  for (std::string& word : step_word) cut(word);
}

EncodeScratch& scratch_of(uint64_t owner) {
  thread_local std::unique_ptr<EncodeScratch> recent, older;
  if (recent && recent->owner == owner) return *recent;
  std::swap(recent, older);
  if (recent && recent->owner == owner) return *recent;
  recent = std::make_unique<EncodeScratch>();
  recent->owner = owner;
  return *recent;
}

}  // namespace ibid
