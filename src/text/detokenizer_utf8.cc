#include "text/detokenizer_utf8.h"

#include <cstring>

namespace ibid {
namespace {

size_t ascii_prefix(const char* data, size_t size) {
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    if (word & 0x8080808080808080ull) break;
  }
  while (i < size && static_cast<uint8_t>(data[i]) < 0x80) ++i;
  return i;
}

}  // namespace

void Utf8Mender::push(std::string_view bytes, std::string& out) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (n_pending_ == 0) {
      size_t n = ascii_prefix(bytes.data() + i, bytes.size() - i);
      out.append(bytes, i, n);
      i += n;
      if (i == bytes.size()) return;
      auto lead = static_cast<uint8_t>(bytes[i++]);
      if (lead < 0xC2 || lead > 0xF4) {
        out += kReplacementCharacter;
        continue;
      }
      // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
      n_wanted_ = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
      next_min_ = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
      next_max_ = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
      pending_[0] = static_cast<char>(lead);
      n_pending_ = 1;
      continue;
    }
    auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < next_min_ || byte > next_max_) {  // the byte itself begins something new
      out += kReplacementCharacter;
      n_pending_ = 0;
      continue;
    }
    ++i;
    next_min_ = 0x80;
    next_max_ = 0xBF;
    if (--n_wanted_ == 0) {
      out.append(pending_, n_pending_);
      out += static_cast<char>(byte);
      n_pending_ = 0;
    } else {
      pending_[n_pending_++] = static_cast<char>(byte);
    }
  }
}

void Utf8Mender::finish(std::string& out) {
  if (n_pending_ != 0) out += kReplacementCharacter;
  n_pending_ = 0;
}

bool is_valid_utf8(std::string_view bytes) {
  std::string mended;
  Utf8Mender mender;
  mender.push(bytes, mended);
  mender.finish(mended);
  return mended == bytes;
}

}  // namespace ibid
