// Points [d] and [e] of the selftest: rejection verification as the field's texts check it.
#pragma once

namespace ibid::cli {

// 100,000 drafts: as many are accepted as the laws overlap, within 1 %.
bool accepts_as_often_as_laws_overlap();
// The total variation between what comes out and the target's law is below 0.01.
bool draws_the_targets_law();

}  // namespace ibid::cli
