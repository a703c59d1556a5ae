#include "host/own_eagle.h"

#include <cstddef>
#include <utility>

#include "format/gguf.h"

// Embeds the file as it lies; the build defines where.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    "ibid_own_eagle_begin:\n"
    ".incbin \"" IBID_OWN_EAGLE
    "\"\n"
    "ibid_own_eagle_end:\n"
    ".byte 0\n"
    ".text\n");

extern "C" {
extern const std::byte ibid_own_eagle_begin[];
extern const std::byte ibid_own_eagle_end[];
}

namespace ibid::host {

Result<ModelFile> own_eagle() {
  return read_gguf(MappedFile::of_program({ibid_own_eagle_begin, ibid_own_eagle_end}, "ibid's own draft head"));
}

}  // namespace ibid::host
