// The options of the C library: whatever the bytes are, the end is options or a sentence.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/options/named_options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto options = ibid::cli::read_named_options(text);
  if (!options) {
    if (options.error().message.empty()) std::abort();
    return 0;
  }
  static_cast<void>(ibid::cli::one_model(*options));
  return 0;
}
