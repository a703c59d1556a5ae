// What is left of a step goes to drafts: of all sequences, the likeliest first, as long as they pay
// (spec/draft_choice.h) and as there are blocks without taking any from other sequences.
#pragma once

#include "engine/schedule/room.h"
#include "engine/state/policy.h"
#include "engine/state/step_cost.h"
#include "engine/state/step_plan.h"

namespace ibid {

// Adds drafts (Sequence::drafts) to the shares of the plan, within `budget`. `spent`: seconds that went into drafting,
// which count as the step's.
void grant_drafts(StepPlan& plan, const StepBudget& budget, const StepCost& cost, Room& room, double spent);

}  // namespace ibid
