// Adapters of low rank (LoRA, Hu et al. 2021) beside a model's weights: which products they may change, what one of
// them holds, and the table of those that a step may name. Where and in which order a term is summed:
// docs/decisions/0057-where-an-adapter-adds.md.
//
// Letters: a product has N outputs and K inputs, an adapter's matrices are A[r, K] and B[N, r], s its factor.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/expert_rows.h"
#include "kernels/ops.h"
#include "model/linear_layer.h"
#include "tensor/buffer.h"

namespace ibid {

inline constexpr int32_t kMaxAdapterRank = 256;  // that any model takes
inline constexpr int32_t kMaxAdapters = 1024;    // of a table

// A product that adapters may change, or E of them where it is experts'. Made with the model's weights.
struct AdapterSeat {
  std::string name;     // canonical, with its layer: "blk.3.attn_q"
  std::string pattern;  // "blk.{}.attn_q.weight", which the tables of architectures name
  int64_t layer = 0;
  int64_t n_outputs = 0;  // N
  int64_t n_inputs = 0;   // K
  int64_t n_experts = 0;  // E; 0: it is no experts'
  int64_t n_rows = 0;     // of a tensor of which it is the rows from `first_row` on; 0: it is a whole one
  int64_t first_row = 0;
  bool by_head = false;  // a folder has the rows of a head's query, key and value together (WeightName::by_head)
  KPieces pieces;        // of the base's weight
};

// What an adapter has for one seat; of experts E of each, or of those that it leaves out matrices of zeros.
struct LowRank {
  std::vector<Weight> a, b;  // [r, K], [N, r]
  float factor = 1.0f;       // s
};

// One adapter. Immutable.
class Adapter {
 public:
  // A and B of a seat, in floats.
  struct Pair {
    int32_t seat = kNoSeat;
    int64_t rank = 0;         // r
    std::vector<float> a, b;  // [E, r, K], [E, N, r]
    double factor = 1.0;      // s
  };
  // Pairs of seats, at most one of each, which `seats` describes. Errors are sentences about `where`.
  static Result<std::shared_ptr<const Adapter>> make(Stream& s, std::span<const AdapterSeat> seats,
                                                     std::vector<Pair> pairs, const std::string& where);

  // One that is known by its digest alone and runs nowhere: of a record that is replayed without a model.
  static std::shared_ptr<const Adapter> of_digest(std::string digest);

  // Of a seat; null: it changes nothing there.
  const LowRank* at(int32_t seat) const {
    const int32_t i = of_seat_[static_cast<size_t>(seat)];
    return i < 0 ? nullptr : &all_[static_cast<size_t>(i)];
  }
  // SHA-256, 64 hexadecimal digits, of the seats' names, factors and values: of what it does, whatever its file.
  const std::string& digest() const { return digest_; }
  int64_t bytes() const { return bytes_; }
  int64_t max_rank() const { return max_rank_; }
  size_t n_products() const { return all_.size(); }

 private:
  std::vector<LowRank> all_;
  std::vector<int32_t> of_seat_;  // [seats]
  std::vector<std::unique_ptr<float[]>> copies_;
  std::string digest_;
  int64_t bytes_ = 0, max_rank_ = 0;
};

// An adapter that has a slot of the table as long as somebody holds this.
struct PlacedAdapter {
  std::shared_ptr<const Adapter> adapter;
  int32_t slot = -1;
};

// The adapters that a step may name by their slots, and the memory that adding them takes. place() and releases from
// any thread; add() from the one that runs passes, while every slot that the step names is held.
class AdapterTable {
 public:
  struct Sizes {
    int32_t n_slots = 0;
    int64_t max_rank = 0;                            // R, that an adapter may have
    int64_t n_tokens = 0, n_expert_rows = 0;         // T of the largest step, T k of a model with experts
    int64_t n_inputs = 0, n_low = 0, n_outputs = 0;  // floats of x, of A x and of B A x
  };
  // `n_used`: the experts of a token, 0 of a model without any.
  static Sizes sizes_of(std::span<const AdapterSeat> seats, int32_t n_slots, int64_t max_rank, int64_t n_tokens,
                        int64_t n_rows, int64_t n_used);
  static Result<std::unique_ptr<AdapterTable>> create(const DeviceMemory& memory, const Sizes& sizes);

  // What all adapters in it may hold together; by default there is no bound.
  void limit_bytes(int64_t bytes);
  // Fails with kUnavailable where all slots are taken or the bytes do not fit, and with kUnsupported above the table's
  // rank.
  Result<std::shared_ptr<const PlacedAdapter>> place(std::shared_ptr<const Adapter> adapter);

  const Sizes& sizes() const { return sizes_; }
  int64_t scratch_bytes() const { return static_cast<int64_t>(memory_.bytes()); }
  // Of the stream that adds.
  static size_t workspace_bytes(const Sizes& sizes, std::span<const AdapterSeat> seats);

  // out[j] += what each row's adapter has for product j of x.
  void add(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
           std::span<const Linear* const> linears);
  // The same of experts' products: row i of out[j], of token rows.tokens[experts.token[i]], which reads x there or,
  // with kOfRow, at i.
  void add_experts(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
                   ops::ExpertInput input, const ExpertRows& experts, std::span<const int32_t> seats);

 private:
  struct Slots;
  AdapterTable(const Sizes& sizes, Buffer memory);
  // Sorts rows, of experts or else of the step, by their adapters: those of the k-th that it names, named_[k], are
  // rows_[group_[k], group_[k + 1]), ascending.
  void group_rows(const StepRows& rows, const ExpertRows* experts);
  // out[rows[i]] += y[i].
  void add_to(Stream& s, const TensorView& out, std::span<const int32_t> rows, const TensorView& y);

  Sizes sizes_;
  std::shared_ptr<Slots> slots_;
  Buffer memory_;
  TensorView x_, u_, y_, sum_;
  std::vector<int32_t> rows_, inputs_, every_, slot_of_, named_, group_, place_of_slot_, first_row_;
};

}  // namespace ibid
