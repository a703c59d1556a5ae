// The order of the stages of a draw, as data (docs/design.md section 5, law 6): the sampler walks it, `ibid inspect
// --samplers` prints it, traces record it. Penalties, biases, hard masks and temperature change the row of logits;
// truncation then works on the support, which is what is left of the row; the draw comes last. The stages are in
// stage_table.h; everything here is derived from that table, in stage_table.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ibid {

// A row of the stage table, by its place.
enum class StageId : uint8_t {};

std::string_view stage_name(StageId id);

// The policy: every stage once, in the table's order.
std::span<const StageId> stage_order();

// True for a stage that changes logits, false for one that cuts the support.
bool works_on_row(StageId id);

// Rules of any order: every stage once, those on the row before those on the support, the draw last.
bool is_stage_order(std::span<const StageId> order);

}  // namespace ibid
