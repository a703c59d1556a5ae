#include "text/output/utf8_mender.h"

#include "base/utf8.h"

namespace ibid {

void Utf8Mender::push(std::string_view bytes, std::string& out) {
  while (n_pending_ != 0 && !bytes.empty()) {
    char begun[4] = {pending_[0], pending_[1], pending_[2]};
    begun[n_pending_] = bytes[0];
    const std::string_view longer(begun, n_pending_ + 1u);
    if (utf8::is_one(longer)) {
      out += longer;
      n_pending_ = 0;
    } else if (utf8::is_unfinished(longer)) {
      pending_[n_pending_++] = bytes[0];
    } else {  // the byte itself begins something new
      out += utf8::kReplacementBytes;
      n_pending_ = 0;
      continue;
    }
    bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    const size_t n_valid = utf8::valid_prefix(bytes);
    out.append(bytes, 0, n_valid);
    bytes.remove_prefix(n_valid);
    if (utf8::is_unfinished(bytes)) {
      for (char byte : bytes) pending_[n_pending_++] = byte;
      return;
    }
    if (bytes.empty()) return;
    out += utf8::kReplacementBytes;
    bytes.remove_prefix(utf8::decode(bytes.data(), bytes.data() + bytes.size()).len);
  }
}

void Utf8Mender::finish(std::string& out) {
  if (n_pending_ != 0) out += utf8::kReplacementBytes;
  n_pending_ = 0;
}

}  // namespace ibid
