// hidden_states MODEL TOKENS OUT [--threads N] [--layers I,J]: the model's hidden states of each token of some
// sequences, as in steps of the engine. TOKENS: int32, for each sequence its length, then its ids; OUT: F16 [tokens of
// all sequences, K + 1, C]: the inputs of layers I, J, ... (the number of layers: the output of the last one), then the
// output of the final norm. For tools/train_heads.py and tools/train_eagle.py.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "tensor/half.h"
#include "worker/model_pass.h"
#include "worker/worker.h"

namespace {

using namespace ibid;

constexpr int32_t kStep = 512;  // tokens of a pass
constexpr int32_t kBlockLen = 16;

int fail(const std::string& message) {
  std::cerr << "hidden_states: " << message << "\n";
  return 1;
}

// One text, from its beginning on; its hidden states go to `out`.
void compute(Worker& worker, std::span<const TokenId> text, std::vector<uint16_t>& out) {
  std::vector<BlockId> blocks((text.size() + kBlockLen - 1) / kBlockLen);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = BlockId{static_cast<int32_t>(i)};
  const auto n = static_cast<int32_t>(text.size());
  for (int32_t first = 0; first < n; first += kStep) {
    const int32_t n_tokens = std::min(kStep, n - first), end = first + n_tokens;
    std::vector<int32_t> positions(static_cast<size_t>(n_tokens));
    std::iota(positions.begin(), positions.end(), first);
    const int32_t query_start[] = {0, n_tokens}, block_start[] = {0, (end + kBlockLen - 1) / kBlockLen};
    const ForwardBatch batch = {.n_tokens = n_tokens,
                                .n_sequences = 1,
                                .block_len = kBlockLen,
                                .tokens = text.data() + first,
                                .positions = positions.data(),
                                .slots = positions.data(),  // blocks lie one after the other
                                .query_start = query_start,
                                .kv_len = &end,
                                .block_start = block_start,
                                .block_table = blocks.data()};
    const StepOutput output = worker.wait(worker.launch({.batch = &batch, .wants_hidden = true}));
    for (int32_t i = 0; i < n_tokens; ++i) {
      for (const HostRows& hidden : output.hidden) {
        for (const float value : hidden.row(static_cast<size_t>(i))) out.push_back(float_to_half(value));
      }
    }
  }
}

int run(const std::vector<std::string>& files, int n_threads, std::vector<int32_t> layers) {
  Result<ModelFile> file = ModelFile::open(files[0]);
  if (!file) return fail(file.error().message);
  ThreadTeam team(n_threads);
  Stream stream(team);
  auto model = load_model(std::make_shared<ModelFile>(std::move(file).value()), {.step_tokens = kStep}, stream);
  if (!model) return fail(model.error().message);
  const auto context_len = static_cast<int32_t>((*model)->context_len());
  auto pass = std::make_unique<ModelPass>(**model, stream, std::span<const TokenId>(), "");
  const int32_t n_layers = pass->facts().n_layers();
  for (int32_t& layer : layers) {
    if (layer < 1 || layer > n_layers) return fail("the model has no layer " + std::to_string(layer));
    --layer;  // the worker names a layer by its output
  }
  layers.push_back(n_layers);
  if (!std::ranges::is_sorted(layers)) return fail("layers must ascend");
  auto worker = Worker::create(std::move(pass), stream,
                               {.block_len = kBlockLen,
                                .n_blocks = context_len / kBlockLen + 1,
                                .step_tokens = kStep,
                                .max_rows = 1,
                                .hidden_layers = std::move(layers)});
  if (!worker) return fail(worker.error().message);
  std::ifstream in(files[1], std::ios::binary);
  std::ofstream out(files[2], std::ios::binary);
  std::vector<uint16_t> hidden;
  int64_t n_texts = 0;
  for (int32_t n = 0; in.read(reinterpret_cast<char*>(&n), sizeof(n)); ++n_texts) {
    if (n <= 0 || n > context_len) return fail("a text of " + std::to_string(n) + " tokens");
    std::vector<TokenId> text(static_cast<size_t>(n));
    if (!in.read(reinterpret_cast<char*>(text.data()), n * static_cast<int64_t>(sizeof(TokenId))))
      return fail("the last text is cut");
    hidden.clear();
    compute(**worker, text, hidden);
    out.write(reinterpret_cast<const char*>(hidden.data()), static_cast<std::streamsize>(hidden.size() * 2));
    if ((n_texts + 1) % 256 == 0) std::cerr << "hidden_states: " << n_texts + 1 << " texts\n";
  }
  return out.flush() ? 0 : fail("cannot write " + files[2]);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::vector<int32_t> layers;
  int n_threads = usable_cores();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--threads" && i + 1 < argc) {
      n_threads = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--layers" && i + 1 < argc) {
      std::istringstream list(argv[++i]);
      for (std::string number; std::getline(list, number, ',');) layers.push_back(std::atoi(number.c_str()));
    } else {
      files.push_back(word);
    }
  }
  return files.size() == 3 ? run(files, n_threads, layers) : fail("MODEL TOKENS OUT [--threads N] [--layers I,J]");
}
