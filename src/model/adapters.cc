#include "model/adapters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/quoted.h"
#include "base/sha256.h"
#include "kernels/reference.h"
#include "model/scratch.h"
#include "tensor/half.h"

namespace ibid {
namespace {

bool is_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

bool is_half(std::span<const float> values) {
  return std::ranges::all_of(values, [](float v) { return half_to_float(float_to_half(v)) == v; });
}

// [E, n_rows, n_columns], in memory of `copy`.
TensorView stored(std::span<const float> values, int64_t n_experts, int64_t n_rows, int64_t n_columns,
                  std::unique_ptr<float[]>& copy) {
  const DType dtype = is_half(values) ? DType::kF16 : DType::kF32;
  copy = std::make_unique<float[]>(values.size());
  TensorView view(copy.get(), dtype, {n_experts, n_rows, n_columns});
  if (dtype == DType::kF32) {
    std::ranges::copy(values, copy.get());
  } else {
    auto* halves = reinterpret_cast<uint16_t*>(copy.get());
    for (size_t i = 0; i < values.size(); ++i) halves[i] = float_to_half(values[i]);
  }
  return view;
}

}  // namespace

Result<std::shared_ptr<const Adapter>> Adapter::make(Stream& s, std::span<const AdapterSeat> seats,
                                                     std::vector<Pair> pairs, const std::string& where) {
  auto adapter = std::make_shared<Adapter>();
  adapter->of_seat_.assign(seats.size(), -1);
  std::ranges::sort(pairs, {}, &Pair::seat);
  Sha256 digest;
  for (Pair& pair : pairs) {
    const AdapterSeat& seat = seats[static_cast<size_t>(pair.seat)];
    const int64_t E = std::max<int64_t>(1, seat.n_experts), r = pair.rank;
    CHECK(std::ssize(pair.a) == E * r * seat.n_inputs && std::ssize(pair.b) == E * seat.n_outputs * r);
    CHECK(adapter->of_seat_[static_cast<size_t>(pair.seat)] < 0, "one pair for a seat");
    if (r < 1 || r > kMaxAdapterRank) {
      return unsupported(where + ": the rank of " + in_quotes(seat.name) + " is " + std::to_string(r) +
                             "; ibid takes 1 to " + std::to_string(kMaxAdapterRank),
                         seat.name);
    }
    const auto factor = static_cast<float>(pair.factor);
    if (!std::isfinite(factor) || !is_finite(pair.a) || !is_finite(pair.b))
      return invalid(where + ": a number of " + in_quotes(seat.name) + " is not finite", seat.name);
    const std::array<int64_t, 5> sizes = {std::max<int64_t>(0, seat.n_experts), r, seat.n_inputs, seat.n_outputs,
                                          std::bit_cast<int32_t>(factor)};
    digest.add(seat.name.c_str(), seat.name.size() + 1);
    digest.add(sizes.data(), sizeof(sizes));
    digest.add(pair.a.data(), pair.a.size() * sizeof(float));
    digest.add(pair.b.data(), pair.b.size() * sizeof(float));

    LowRank& low = adapter->all_.emplace_back();
    adapter->of_seat_[static_cast<size_t>(pair.seat)] = static_cast<int32_t>(adapter->all_.size()) - 1;
    low.factor = factor;
    adapter->max_rank_ = std::max(adapter->max_rank_, r);
    const auto prepare = [&](std::vector<float>& values, int64_t n_rows, int64_t n_columns, const KPieces& pieces) {
      std::unique_ptr<float[]> copy;
      const TensorView raw = stored(values, E, n_rows, n_columns, copy);
      std::vector<float>().swap(values);
      std::vector<Weight> weights = prepare_weights(s, raw, pieces);
      const bool is_read = reference::selected() || weights.front().packed_bytes == 0;
      for (Weight& w : weights) {
        adapter->bytes_ += w.packed_bytes + (is_read ? n_rows * raw.row_stride_bytes : 0);
        if (!is_read) w.raw.data = nullptr;
      }
      if (is_read) adapter->copies_.push_back(std::move(copy));
      return weights;
    };
    low.a = prepare(pair.a, r, seat.n_inputs, seat.pieces);
    low.b = prepare(pair.b, seat.n_outputs, r, one_piece(r));
  }
  adapter->digest_ = digest.hex();
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

std::shared_ptr<const Adapter> Adapter::of_digest(std::string digest) {
  auto adapter = std::make_shared<Adapter>();
  adapter->digest_ = std::move(digest);
  return adapter;
}

// Outlives the table where somebody still holds an adapter's place.
struct AdapterTable::Slots {
  explicit Slots(size_t n) : adapters(n) {}
  std::mutex mutex;  // of taking and releasing; a pass reads slots that are held
  std::vector<std::shared_ptr<const Adapter>> adapters;
  int64_t bytes = 0, max_bytes = std::numeric_limits<int64_t>::max();
};

AdapterTable::AdapterTable(const Sizes& sizes, Buffer memory)
    : sizes_(sizes), slots_(std::make_shared<Slots>(static_cast<size_t>(sizes.n_slots))), memory_(std::move(memory)) {
  const auto n = static_cast<size_t>(std::max(sizes.n_tokens, sizes.n_expert_rows));
  for (std::vector<int32_t>* each : {&rows_, &inputs_, &slot_of_}) each->reserve(n);
  every_.resize(n);
  std::iota(every_.begin(), every_.end(), 0);
  named_.reserve(static_cast<size_t>(sizes.n_slots));
  group_.reserve(static_cast<size_t>(sizes.n_slots) + 1);
  place_of_slot_.assign(static_cast<size_t>(sizes.n_slots), -1);
  first_row_.resize(kMaxExperts + 1);
}

AdapterTable::Sizes AdapterTable::sizes_of(std::span<const AdapterSeat> seats, int32_t n_slots, int64_t max_rank,
                                           int64_t n_tokens, int64_t n_rows, int64_t n_used) {
  Sizes out = {.n_slots = n_slots, .max_rank = max_rank, .n_tokens = n_tokens, .n_expert_rows = n_tokens * n_used};
  for (const AdapterSeat& seat : seats) {
    const bool is_output = seat.pattern == "output.weight";
    const int64_t n = seat.n_experts > 0 ? out.n_expert_rows : is_output ? n_rows : n_tokens;
    const auto together = static_cast<int64_t>(seat.n_experts > 0 ? ops::kMaxExpertWeights : kMaxLinears);
    out.n_inputs = std::max(out.n_inputs, n * seat.n_inputs);
    out.n_low = std::max(out.n_low, n * max_rank * together);
    out.n_outputs = std::max(out.n_outputs, n * seat.n_outputs);
  }
  return out;
}

Result<std::unique_ptr<AdapterTable>> AdapterTable::create(const DeviceMemory& memory, const Sizes& sizes) {
  CHECK(sizes.n_slots >= 1 && sizes.n_slots <= kMaxAdapters);
  TensorView x, u, y, sum;
  const auto place = [&](ScratchLayout& layout) {
    x = layout.take(1, sizes.n_inputs);
    u = layout.take(1, sizes.n_low);
    y = layout.take(1, sizes.n_outputs);
    sum = layout.take(1, sizes.n_outputs);
  };
  ASSIGN_OR_RETURN(Buffer buffer, allocate_scratch(memory, place, "adding adapters"));
  std::unique_ptr<AdapterTable> table(new AdapterTable(sizes, std::move(buffer)));
  table->x_ = x, table->u_ = u, table->y_ = y, table->sum_ = sum;
  return table;
}

size_t AdapterTable::workspace_bytes(const Sizes& sizes, std::span<const AdapterSeat> seats) {
  size_t bytes = ops::linear_workspace_bytes(sizes.n_tokens, sizes.max_rank);
  if (sizes.n_expert_rows > 0)
    bytes = std::max(bytes, ops::linear_experts_workspace_bytes(sizes.n_expert_rows, sizes.max_rank));
  for (const AdapterSeat& seat : seats) {
    bytes = std::max(bytes, seat.n_experts > 0 ? ops::linear_experts_workspace_bytes(sizes.n_expert_rows, seat.n_inputs)
                                               : ops::linear_workspace_bytes(sizes.n_tokens, seat.n_inputs));
  }
  return bytes;
}

void AdapterTable::limit_bytes(int64_t bytes) {
  const std::scoped_lock lock(slots_->mutex);
  slots_->max_bytes = bytes;
}

Result<std::shared_ptr<const PlacedAdapter>> AdapterTable::place(std::shared_ptr<const Adapter> adapter) {
  if (adapter->max_rank() > sizes_.max_rank) {
    return unsupported("the adapter has a rank of " + std::to_string(adapter->max_rank()) + "; --max-lora-rank is " +
                           std::to_string(sizes_.max_rank),
                       "max-lora-rank");
  }
  const std::scoped_lock lock(slots_->mutex);
  const auto free = std::ranges::find(slots_->adapters, nullptr);
  if (free == slots_->adapters.end()) {
    return unavailable("all " + std::to_string(sizes_.n_slots) +
                       " places of adapters are taken, by loaded ones and by unloaded ones whose answers are under "
                       "way; --max-loras has more");
  }
  const int64_t left = slots_->max_bytes - slots_->bytes;
  if (adapter->bytes() > left) {
    return unavailable("the adapter takes " + std::to_string(adapter->bytes()) + " bytes, and of those for adapters " +
                       std::to_string(left) + " are left; --lora-memory gives them more");
  }
  *free = adapter;
  slots_->bytes += adapter->bytes();
  const auto slot = static_cast<int32_t>(free - slots_->adapters.begin());
  return std::shared_ptr<const PlacedAdapter>(new PlacedAdapter{std::move(adapter), slot},
                                              [slots = slots_](const PlacedAdapter* placed) {
                                                std::shared_ptr<const Adapter> gone;  // freed outside of the lock
                                                {
                                                  const std::scoped_lock held(slots->mutex);
                                                  gone.swap(slots->adapters[static_cast<size_t>(placed->slot)]);
                                                  slots->bytes -= gone->bytes();
                                                }
                                                delete placed;
                                              });
}

void AdapterTable::group_rows(const StepRows& rows, const ExpertRows* experts) {
  const ForwardBatch& b = *rows.batch;
  slot_of_.clear();
  int32_t s = 0;
  for (const int32_t token : rows.tokens) {
    while (token >= b.query_start[s + 1]) ++s;
    slot_of_.push_back(b.adapters[s]);
  }
  const auto n = static_cast<size_t>(experts != nullptr ? experts->n_rows() : std::ssize(rows.tokens));
  const auto slot_of = [&](size_t i) {
    return slot_of_[experts != nullptr ? static_cast<size_t>(experts->token[i]) : i];
  };
  named_.clear();
  group_.assign(1, 0);
  for (size_t i = 0; i < n; ++i) {
    const int32_t slot = slot_of(i);
    if (slot < 0) continue;
    CHECK(slot < sizes_.n_slots, "an adapter that is not there");
    int32_t& place = place_of_slot_[static_cast<size_t>(slot)];
    if (place < 0) {
      place = static_cast<int32_t>(named_.size());
      named_.push_back(slot);
      group_.push_back(0);
    }
    ++group_[static_cast<size_t>(place) + 1];
  }
  std::partial_sum(group_.begin(), group_.end(), group_.begin());
  rows_.resize(static_cast<size_t>(group_.back()));
  for (size_t i = 0; i < n; ++i) {
    const int32_t slot = slot_of(i);
    if (slot < 0) continue;
    // Each group's begin moves to its end, and so to the next one's begin.
    rows_[static_cast<size_t>(group_[static_cast<size_t>(place_of_slot_[static_cast<size_t>(slot)])]++)] =
        static_cast<int32_t>(i);
  }
  for (size_t k = named_.size(); k > 0; --k) group_[k] = group_[k - 1];
  group_[0] = 0;
  for (const int32_t slot : named_) place_of_slot_[static_cast<size_t>(slot)] = -1;
}

namespace {

bool are_neighbours(std::span<const int32_t> rows) { return rows.back() - rows.front() + 1 == std::ssize(rows); }

// Rows [first, first + n).
TensorView part_of(TensorView x, int64_t first, int64_t n) {
  x.data += first * x.row_stride_bytes;
  x.dim[0] = n;
  return x;
}

}  // namespace

void AdapterTable::add_to(Stream& s, const TensorView& out, std::span<const int32_t> rows, const TensorView& y) {
  const int64_t n = std::ssize(rows);
  if (are_neighbours(rows)) return ops::add(s, part_of(out, rows.front(), n), y);
  const TensorView sum(sum_.data, DType::kF32, {n, out.dim[1]});
  ops::gather_rows(s, sum, out, rows);
  ops::add(s, sum, y);
  ops::copy_rows(s, out, rows, sum, std::span(every_).first(rows.size()));
}

void AdapterTable::add(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
                       std::span<const Linear* const> linears) {
  group_rows(rows, nullptr);
  for (size_t k = 0; k < named_.size(); ++k) {
    const Adapter& adapter = *slots_->adapters[static_cast<size_t>(named_[k])];
    const std::span<const int32_t> of =
        std::span(rows_).subspan(static_cast<size_t>(group_[k]), static_cast<size_t>(group_[k + 1] - group_[k]));
    const int64_t n = std::ssize(of);
    std::array<const LowRank*, kMaxLinears> low;
    std::array<const Weight*, kMaxLinears> a;
    std::array<TensorView, kMaxLinears> u;
    std::array<size_t, kMaxLinears> product;
    size_t n_low = 0;
    std::byte* at = u_.data;
    for (size_t j = 0; j < linears.size(); ++j) {
      const LowRank* of_seat = linears[j]->seat == kNoSeat ? nullptr : adapter.at(linears[j]->seat);
      if (of_seat == nullptr) continue;
      const int64_t r = of_seat->a.front().n_outputs;
      u[n_low] = TensorView(at, DType::kF32, {n, r});
      at += n * r * static_cast<int64_t>(sizeof(float));
      a[n_low] = &of_seat->a.front();
      low[n_low] = of_seat;
      product[n_low++] = j;
    }
    if (n_low == 0) continue;
    TensorView in = part_of(x, of.front(), n);
    if (!are_neighbours(of)) {
      in = TensorView(x_.data, DType::kF32, {n, x.dim[1]});
      ops::gather_rows(s, in, x, of);
    }
    ops::linear(s, {u.data(), n_low}, in, {a.data(), n_low});
    for (size_t i = 0; i < n_low; ++i) {
      if (low[i]->factor != 1) ops::scale(s, u[i], low[i]->factor);
      const Weight* b = &low[i]->b.front();
      const TensorView y(y_.data, DType::kF32, {n, b->n_outputs});
      ops::linear(s, {&y, 1}, u[i], {&b, 1});
      add_to(s, out[product[i]], of, y);
    }
  }
}

void AdapterTable::add_experts(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
                               ops::ExpertInput input, const ExpertRows& experts, std::span<const int32_t> seats) {
  group_rows(rows, &experts);
  for (size_t k = 0; k < named_.size(); ++k) {
    const Adapter& adapter = *slots_->adapters[static_cast<size_t>(named_[k])];
    const std::span<const int32_t> of =
        std::span(rows_).subspan(static_cast<size_t>(group_[k]), static_cast<size_t>(group_[k + 1] - group_[k]));
    const int64_t n = std::ssize(of);
    bool is_gathered = false;
    ExpertRows these = {.n_tokens = static_cast<int32_t>(n),
                        .n_used = 1,
                        .n_experts = experts.n_experts,
                        .first_row = first_row_.data()};
    const TensorView in(x_.data, DType::kF32, {n, x.dim[1]});
    for (size_t j = 0; j < seats.size(); ++j) {
      const LowRank* low = seats[j] == kNoSeat ? nullptr : adapter.at(seats[j]);
      if (low == nullptr) continue;
      if (!std::exchange(is_gathered, true)) {
        inputs_.clear();
        for (const int32_t row : of) inputs_.push_back(input == ops::ExpertInput::kOfToken ? experts.token[row] : row);
        ops::gather_rows(s, in, x, inputs_);
        const auto first_of = [&](int32_t e) {
          return static_cast<int32_t>(std::ranges::lower_bound(of, experts.first_row[e]) - of.begin());
        };
        for (int32_t e = 0; e <= experts.n_experts; ++e) first_row_[static_cast<size_t>(e)] = first_of(e);
      }
      const TensorView u(u_.data, DType::kF32, {n, low->a.front().n_outputs});
      const TensorView y(y_.data, DType::kF32, {n, low->b.front().n_outputs});
      const std::span<const Weight> a = low->a, b = low->b;
      ops::linear_experts(s, {&u, 1}, in, ops::ExpertInput::kOfRow, these, {&a, 1});
      if (low->factor != 1) ops::scale(s, u, low->factor);
      ops::linear_experts(s, {&y, 1}, u, ops::ExpertInput::kOfRow, these, {&b, 1});
      add_to(s, out[j], of, y);
    }
  }
}

}  // namespace ibid
