// Which CPU kernel table is used. Chosen once at start-up, before any op runs; all tables give the same bits
// (docs/design.md section 5, law 7).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid {

enum class Isa { kBaseline, kAvx2, kAvx2Vnni, kAvx512, kAvx512Vnni, kAvx512Bf16, kNeon, kNeonDotprod, kNeonI8mm };

std::string_view isa_name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);
std::vector<Isa> supported_isas();  // by this CPU and this build, worst first
Status select_isa(Isa isa);         // refuses what this CPU lacks; not while ops run
Isa selected_isa();                 // default: the best supported one

}  // namespace ibid
