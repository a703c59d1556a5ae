// Model: weights in memory and the forward pass of one step over paged KV. What engine/ sees of a model.
//
// Threads: one thread at a time calls forward (the stream's team works for it); const members from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "kernels/forward_batch.h"
#include "kernels/kv_layout.h"
#include "kernels/paged_kv.h"
#include "kernels/state_layout.h"
#include "kernels/state_slots.h"
#include "model/adapters.h"
#include "model/config.h"
#include "model/kv_arithmetic.h"
#include "model/pass.h"
#include "model/rope.h"
#include "model/scratch.h"
#include "tensor/stream.h"

namespace ibid {

class PackedFile;          // model/packed_file.h
struct VocabularyWeights;  // model/blocks.h

struct ModelOptions {
  int64_t context_len = 0;     // longest sequence in tokens; 0: the model's own. Chooses longrope's factors
  int32_t step_tokens = 512;   // T, the most tokens of one step
  int32_t max_rows = 64;       // R, the most rows of logits of one step
  int32_t max_sequences = 64;  // S
  int64_t n_layers = 0;        // only the first so many, to measure them; 0: all
  bool sized_only = false;     // no weight is read: all is checked and counted, and forward() is not to be called
  // A cache folder (base/cache_folder.h) where the packed weights are kept, to be mapped by the next load of the same
  // model (model/packed_file.h). Empty: they are not.
  std::string keep_packed_in = {};
  int32_t max_adapters = 0;      // that a step may name (model/adapters.h); 0: none
  int64_t max_adapter_rank = 0;  // of each
};

struct MemoryUse {
  int64_t mapped_bytes = 0;     // weights that steps read where they lie in the file
  int64_t repacked_bytes = 0;   // weights copied into a layout of our own
  int64_t scratch_bytes = 0;    // intermediates of one step
  int64_t workspace_bytes = 0;  // what ops need besides (Stream::workspace)
  int64_t adapter_bytes = 0;    // what adding adapters needs; not the adapters themselves
};

class Model {
 public:
  virtual ~Model() = default;

  // logits[R, V] of batch.logit_rows. kv[l] is layer l's part of the cache; this step's keys and values are written to
  // batch.slots. CHECKs that the batch keeps the limits of ModelOptions and that tokens and positions are in range.
  // Allocates nothing. A row's bits depend on its own sequence alone (docs/design.md section 5). `hidden` asks for
  // hidden states besides: no other bit changes, but where the last layer's are wanted it runs over all T rows. Their
  // buffers are the caller's; step_tokens rows of C each do for every step. An encoder has no kv (its span is empty),
  // and each sequence of its batch is a whole text; its rows are in model/bert.h. `states`: of a model with recurrent
  // layers, the memory of the slots that the batch names, of state_layout(). `inputs`: of a model that load_layer()
  // made, [T, C] F32 in the place of embeddings.
  void forward(Stream& s, const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
               const HiddenStates& hidden = {}, const StateSlots& states = {}, const TensorView& inputs = {});

  const ModelConfig& config() const { return config_; }
  const ModelOptions& options() const { return options_; }
  int64_t context_len() const { return options_.context_len; }
  // What a cache must hold for a layer; its part of forward()'s kv agrees with it.
  virtual KvGeometry kv_geometry(int layer) const { return ibid::kv_geometry(config_, layer); }
  // Its embeddings and outputs, which draft heads read too. Null: an encoder, which has no outputs.
  virtual const VocabularyWeights* vocabulary() const { return nullptr; }
  std::vector<KvGeometry> kv_geometries() const;  // [L]; of an encoder, which keeps nothing, none
  // What its recurrent layers keep of a sequence; slots of no bytes without any.
  const StateLayout& state_layout() const { return state_layout_; }
  const MemoryUse& memory() const { return memory_; }
  // Products that adapters may change, and the adapters that steps may name; null: options().max_adapters is 0.
  std::span<const AdapterSeat> adapter_seats() const { return *seats_; }
  AdapterTable* adapters() const { return adapters_.get(); }
  // What a KV block depends on besides the model's digest, the KV dtype and its tokens: the RoPE in use.
  std::string rope_signature() const;

  void set_tap(Tap tap) { tap_ = std::move(tap); }  // for golden tests and dumps

 protected:
  struct Parts {
    std::shared_ptr<const ModelFile> file;
    ModelConfig config;
    ModelOptions options;
    Scratch scratch;  // for the largest step of the options
  };
  explicit Model(Parts parts);

  // Layers `kept` alone, ascending, with the weights of this one. Null: such a model has no such part.
  virtual std::unique_ptr<Model> part(Parts parts, std::span<const int32_t> kept) const;

  // Straight-line code over blocks and ops: p.batch's tokens to p.logits, p.hidden and p.kv.
  virtual void run(Pass& p) = 0;

  std::shared_ptr<const ModelFile> file_;     // keeps the mappings
  std::shared_ptr<const PackedFile> packed_;  // and those of packed weights; null: they are the model's own
  ModelConfig config_;
  ModelOptions options_;
  StateLayout state_layout_;            // of config_
  std::vector<RopeTable> rope_tables_;  // as config_.ropes
  // What was copied into memory of our own; parts of the model hold it too.
  std::shared_ptr<const std::vector<std::unique_ptr<float[]>>> copies_;
  std::shared_ptr<const std::vector<AdapterSeat>> seats_ = std::make_shared<const std::vector<AdapterSeat>>();
  std::unique_ptr<AdapterTable> adapters_;
  MemoryUse memory_;
  bool reads_inputs_ = false;  // as load_layer() makes it

 private:
  friend Result<std::unique_ptr<Model>> load_model(std::shared_ptr<const ModelFile>, ModelConfig, const ModelOptions&,
                                                   Stream&, const std::function<void(double)>&);
  friend Result<std::unique_ptr<Model>> model_without(const Model&, std::span<const int32_t>, const ModelOptions&,
                                                      Stream&);
  friend Result<std::unique_ptr<Model>> load_layer(std::shared_ptr<const ModelFile>, ModelConfig,
                                                   const VocabularyWeights&, const ModelOptions&, Stream&);
  Status make_adapter_table(Stream& s);
  void check_states(const ForwardBatch& batch, const StateSlots& states) const;
  Scratch scratch_;                   // of the largest step
  Scratch step_;                      // cut to this one
  std::vector<int32_t> every_token_;  // 0, 1, ... of the largest step
  Tap tap_;
};

// Reads, checks and repacks a model. Everything a step needs is allocated here, the stream's workspace too. A file of
// packed weights that cannot be used or written is a warning in the log, and the load goes on without.
// progress(share in [0, 1]) is called on the caller's thread. Errors are sentences about the file or the options.
Result<std::unique_ptr<Model>> load_model(std::shared_ptr<const ModelFile> file, const ModelOptions& options, Stream& s,
                                          const std::function<void(double share)>& progress = {});

// The same with a configuration of the caller's in the place of what the file's keys describe: tests run layers so that
// no architecture has yet. The file names the architecture, whose names its tensors have.
Result<std::unique_ptr<Model>> load_model(std::shared_ptr<const ModelFile> file, ModelConfig config,
                                          const ModelOptions& options, Stream& s,
                                          const std::function<void(double share)>& progress = {});

// `whole` without the layers `skipped`: ascending, each below its n_layers, not all of them. It reads the very weights
// of `whole`, which live as long as either of the two does, and has intermediates of its own, for a step of `options`;
// of these n_layers, sized_only and keep_packed_in have no effect: `whole` decides. Bits are those of a model file
// without these layers. Errors are sentences about the layers or the options; an encoder has no such part.
Result<std::unique_ptr<Model>> model_without(const Model& whole, std::span<const int32_t> skipped,
                                             const ModelOptions& options, Stream& s);

// A model of one layer that reads inputs of its caller's and ends as another model does (spec/heads/mtp_layer.h):
// `file` has the tensors of its layer 0 and no others, `config` describes it, and `ends` has the final norm and the
// outputs, which outlive it. Of the options n_layers and keep_packed_in have no effect. Errors are sentences about the
// file or the options; shapes other than llama's are refused.
Result<std::unique_ptr<Model>> load_layer(std::shared_ptr<const ModelFile> file, ModelConfig config,
                                          const VocabularyWeights& ends, const ModelOptions& options, Stream& s);

}  // namespace ibid
