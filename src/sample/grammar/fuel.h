// Fuel: what the compilation of a user's text may use up, counted so that the verdict is the same on every machine and
// under every load: steps, which are never given back, and bytes, which are.
//
// A step is a bounded piece of work: kCompileSteps of them are below a quarter of a second on a machine of today. Bytes
// are what lists and tables hold that grow with the text, by the sizes of their parts and before these are there
// (Held, make_room); what else is held, the text's reader among it, is below kBytesBeside. Together they are 32 MiB.
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

  // False once all is used up, and for ever after.
  bool burn(int64_t steps) {
    left_ = steps > left_ ? -1 : left_ - steps;
    return left_ >= 0;
  }
  // Takes bytes, or gives them back where they are negative: see Held. Bytes that are not there use all up.
  bool hold(int64_t bytes) {
    bytes_left_ -= bytes;
    least_bytes_left_ = std::min(least_bytes_left_, bytes_left_);
    if (bytes_left_ < 0) left_ = -1;
    return left_ >= 0;
  }
  // Whether so many could be held; where they could not all is used up.
  bool has_room(int64_t bytes) { return bytes <= bytes_left_ ? left_ >= 0 : burn(left_ + 1); }
  bool is_empty() const { return left_ < 0; }
  int64_t left() const { return left_ < 0 ? 0 : left_; }
  int64_t bytes_left() const { return std::max<int64_t>(bytes_left_, 0); }
  int64_t most_held() const { return bytes_ - least_bytes_left_; }  // at any time

 private:
  int64_t left_, bytes_, bytes_left_, least_bytes_left_;
};

// What a block of so many bytes takes of a heap: its size stands before it, and it is a multiple of 16.
constexpr int64_t block(size_t n_bytes) {
  return n_bytes == 0 ? 0 : std::max<int64_t>(32, (static_cast<int64_t>(n_bytes) + 8 + 15) & ~int64_t{15});
}

// Of a text beyond what its own object has room for.
inline int64_t block_of(const std::string& text) { return text.capacity() < 16 ? 0 : block(text.capacity() + 1); }

// Bytes of a fuel that something takes while it lives; its copy takes them once more. The fuel outlives it.
class Held {
 public:
  Held() = default;  // of no fuel: takes nothing
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

  // So many more, or fewer. False where the fuel is used up.
  bool add(int64_t bytes) {
    if (fuel_ == nullptr) return true;
    bytes_ += bytes;
    return fuel_->hold(bytes);
  }
  // So many of this fuel, in place of those before.
  bool set(Fuel& fuel, int64_t bytes) {
    if (fuel_ != &fuel) *this = Held(fuel);
    return add(bytes - bytes_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Fuel* fuel_ = nullptr;
  int64_t bytes_ = 0;
};

// Room for `n` more in a list, held before it is there: while a large list moves it is there twice, so it grows by a
// half, and a small one by all. False, and the list is as it was, where there is no fuel for it.
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
  return invalid(
      "The grammar takes more than the steps or the memory that one may take to compile; a smaller one would do.");
}

}  // namespace ibid::grammar
