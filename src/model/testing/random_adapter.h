// Adapters of random matrices, for tests of what adds them.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "model/adapters.h"
#include "model/testing/loaded_model.h"

namespace ibid::testing {

// Matrices for every seat.
inline std::vector<Adapter::Pair> random_pairs(std::span<const AdapterSeat> seats, uint64_t seed, float size = 0.2f) {
  std::mt19937_64 bits(seed);
  const auto value = [&] { return (static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f) * size; };
  std::vector<Adapter::Pair> out;
  for (size_t i = 0; i < seats.size(); ++i) {
    Adapter::Pair& pair = out.emplace_back();
    const int64_t E = std::max<int64_t>(1, seats[i].n_experts);
    pair.seat = static_cast<int32_t>(i);
    pair.rank = 1 + static_cast<int64_t>(bits() % 5);
    pair.factor = 0.5 + static_cast<double>(bits() % 3);
    for (int64_t n = E * pair.rank * seats[i].n_inputs; n > 0; --n) pair.a.push_back(value());
    for (int64_t n = E * pair.rank * seats[i].n_outputs; n > 0; --n) pair.b.push_back(value());
  }
  return out;
}

inline std::shared_ptr<const Adapter> random_adapter(LoadedModel& m, uint64_t seed) {
  const auto seats = m.model->adapter_seats();
  return Adapter::make(*m.stream, seats, random_pairs(seats, seed), "a random adapter").value();
}

}  // namespace ibid::testing
