// An engine with a world's options.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/record/recorder.h"
#include "fake_disk.h"
#include "sim/cell_model.h"
#include "sim/script.h"

namespace ibid::sim {

// `witness`, `stream` and `clock` outlive it. What breaks on the disk differs from start to start. With a `recorder`,
// by whose clock it lives then, it is on record.
Result<std::unique_ptr<Engine>> start(const World& world, int64_t n_starts, Witness& witness, Stream& stream,
                                      const Clock& clock, std::shared_ptr<testing::FakeMedium> medium,
                                      Recorder* recorder = nullptr);

}  // namespace ibid::sim
