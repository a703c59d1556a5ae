// Utf8Mender: bytes in any slicing to valid UTF-8. Whole code points only; each maximal part of an ill-formed sequence
// becomes one U+FFFD (Unicode 15, section 3.9, "substitution of maximal subparts"; what Python's
// bytes.decode('utf-8', 'replace') does). The output does not depend on how the bytes were cut. Copyable, 4 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ibid {

class Utf8Mender {
 public:
  // Appends what is now certain; keeps at most three bytes of an unfinished code point.
  void push(std::string_view bytes, std::string& out);
  // Ends the text: an unfinished code point becomes one U+FFFD.
  void finish(std::string& out);
  bool pending() const { return n_pending_ != 0; }

 private:
  char pending_[3] = {};
  uint8_t n_pending_ = 0;
};

}  // namespace ibid
