// ByteBudget: bytes that are promised before they are used, so that what runs can never grow past what there is. Safe
// from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace ibid {

class ByteBudget {
 public:
  // Bytes of a budget, given back when it dies.
  class Share {
   public:
    Share(Share&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_), std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->taken_ -= bytes_;
    }

   private:
    friend class ByteBudget;
    Share(ByteBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
    ByteBudget* budget_;
    int64_t bytes_;
  };

  explicit ByteBudget(int64_t most) : most_(most) {}
  int64_t most() const { return most_; }
  int64_t taken() const { return taken_; }
  // None where they are not left now. The budget outlives its shares.
  std::optional<Share> take(int64_t bytes) {
    int64_t now = taken_;
    do {
      if (bytes > most_ - now) return std::nullopt;
    } while (!taken_.compare_exchange_weak(now, now + bytes));
    return Share(this, bytes);
  }

 private:
  const int64_t most_;
  std::atomic<int64_t> taken_ = 0;
};

}  // namespace ibid
