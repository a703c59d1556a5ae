// Whether times and memory say anything: not in builds that sanitizers slow down.
#pragma once

namespace ibid {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMeasured = false;
#else
inline constexpr bool kMeasured = true;
#endif

}  // namespace ibid
