// Fuel: the budget for compiling a user's text, counted so that the verdict is the same on every machine and under
// every load: steps, which are never returned, and bytes, which are.
//
// A step is a bounded piece of work: kCompileSteps of them are below a quarter of a second on a machine of today. Bytes
// are the memory of lists and tables that grow with the text, by the sizes of their parts and charged before they are
// allocated (Held, make_room); everything else, including the text's reader, is below kBytesBeside. Together they are
// 32 MiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ibid::grammar {

inline constexpr int64_t kCompileSteps = 8'000'000;
inline constexpr int64_t kBytesBeside = 4 << 20;
inline constexpr int64_t kCompileBytes = (32 << 20) - kBytesBeside;

class Fuel {
 public:
  explicit Fuel(int64_t steps = kCompileSteps, int64_t bytes = kCompileBytes)
      : left_(steps), bytes_(bytes), bytes_left_(bytes), least_bytes_left_(bytes) {}
  Fuel(const Fuel&) = delete;
  Fuel& operator=(const Fuel&) = delete;

  // False once all is used up, and from then on.
  bool burn(int64_t steps) {
    left_ = steps > left_ ? -1 : left_ - steps;
    return left_ >= 0;
  }
  // Takes bytes, or returns them if negative: see Held. Taking more than is left uses up all.
  bool hold(int64_t bytes) {
    bytes_left_ -= bytes;
    least_bytes_left_ = std::min(least_bytes_left_, bytes_left_);
    if (bytes_left_ < 0) left_ = -1;
    return left_ >= 0;
  }
  // Whether that many could be held; if not, all is used up.
  bool has_room(int64_t bytes) { return bytes <= bytes_left_ ? left_ >= 0 : burn(left_ + 1); }
  bool is_empty() const { return left_ < 0; }
  int64_t left() const { return left_ < 0 ? 0 : left_; }
  int64_t bytes_left() const { return std::max<int64_t>(bytes_left_, 0); }
  int64_t most_held() const { return bytes_ - least_bytes_left_; }  // at any time

 private:
  int64_t left_, bytes_, bytes_left_, least_bytes_left_;
};

// The heap memory of a block of that many bytes: with its size before it, a multiple of 16.
constexpr int64_t block(size_t n_bytes) {
  return n_bytes == 0 ? 0 : std::max<int64_t>(32, (static_cast<int64_t>(n_bytes) + 8 + 15) & ~int64_t{15});
}

// The heap memory of a string beyond its own object.
inline int64_t block_of(const std::string& text) { return text.capacity() < 16 ? 0 : block(text.capacity() + 1); }

// Bytes that an object takes of a fuel while it lives; a copy takes them again. The fuel outlives it.
class Held {
 public:
  Held() = default;  // without a fuel: takes nothing
  explicit Held(Fuel& fuel) : fuel_(&fuel) {}
  Held(const Held& other) : fuel_(other.fuel_) { add(other.bytes_); }
  Held(Held&& other) noexcept : fuel_(std::exchange(other.fuel_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held other) noexcept {
    std::swap(fuel_, other.fuel_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Held() {
    if (bytes_ != 0) fuel_->hold(-bytes_);
  }

  // Takes that many more, or fewer. False if the fuel is used up.
  bool add(int64_t bytes) {
    if (fuel_ == nullptr) return true;
    bytes_ += bytes;
    return fuel_->hold(bytes);
  }
  // Takes that many of this fuel, in place of those before.
  bool set(Fuel& fuel, int64_t bytes) {
    if (fuel_ != &fuel) *this = Held(fuel);
    return add(bytes - bytes_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Fuel* fuel_ = nullptr;
  int64_t bytes_ = 0;
};

// Reserves room for `n` more items of a list, charged before it is allocated: a large list exists twice while it moves,
// so it grows by a half, and a small one doubles. False, with the list unchanged, if there is no fuel for it.
template <typename T>
[[gnu::noinline]] bool grow(std::vector<T>& list, size_t n, Held& held) {
  constexpr size_t kLarge = 1 << 20;
  const size_t wanted = list.size() + std::max(n, list.size() * sizeof(T) < kLarge ? list.size() : list.size() / 2);
  const int64_t before = block(list.capacity() * sizeof(T));
  if (!held.add(block(wanted * sizeof(T)))) {
    held.add(-block(wanted * sizeof(T)));
    return false;
  }
  list.reserve(wanted);
  held.add(-before);
  return true;
}
template <typename T>
[[gnu::always_inline]] inline bool make_room(std::vector<T>& list, size_t n, Held& held) {
  return list.capacity() - list.size() >= n || grow(list, n, held);
}

inline Error out_of_fuel() {
  return invalid("The grammar exceeds the steps or the memory allowed for compiling one; use a smaller grammar.");
}

}  // namespace ibid::grammar
