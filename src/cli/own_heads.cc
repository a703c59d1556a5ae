#include "cli/own_heads.h"

#include <cstddef>
#include <utility>

#include "format/gguf.h"

// The file as it lies; the build says where.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    "ibid_own_heads_begin:\n"
    ".incbin \"" IBID_OWN_HEADS
    "\"\n"
    "ibid_own_heads_end:\n"
    ".byte 0\n"
    ".text\n");

extern "C" {
extern const std::byte ibid_own_heads_begin[];
extern const std::byte ibid_own_heads_end[];
}

namespace ibid::cli {

Result<ModelFile> own_heads() {
  return read_gguf(MappedFile::of_program({ibid_own_heads_begin, ibid_own_heads_end}, "ibid's own draft heads"));
}

}  // namespace ibid::cli
