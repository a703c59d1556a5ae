// DiskThread: a DurableStore over a folder, with a thread that reads, writes and checks. Reads go before writes:
// somebody waits for them. Memory for images is bounded and made at start-up; where it is used up, nothing more is
// taken.
//
// At its end it writes what it has taken, for a few seconds at most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/durable_store.h"

namespace ibid {

// Of memory, for images of ordinary blocks; as much again for states of a model that has some.
inline constexpr int64_t kDiskThreadBytes = int64_t{128} << 20;

// `folder` is created if missing; an error states what is wrong with it.
Result<std::unique_ptr<DurableStore>> open_disk(const std::string& folder, const BlockFormat& format);

}  // namespace ibid
