// log_probs MODEL TOKENS OUT [--kernels reference] [--kv-dtype f32|f16|bf16] [--threads N]: a model's log-probabilities
// after each token of one context. TOKENS: int32 ids; OUT: float32 [n_tokens, vocabulary]. For compare_kl.py.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "kernels/reference.h"
#include "model/model.h"
#include "model/perplexity.h"

namespace {

using namespace ibid;

struct Arguments {
  std::vector<std::string> files;
  std::string kernels = "fast", kv_dtype = "f16";
  int n_threads = usable_cores();
};

int fail(const std::string& message) {
  std::cerr << "log_probs: " << message << "\n";
  return 1;
}

int run(const Arguments& arguments) {
  const auto kv_dtype = kv_types_from_name(arguments.kv_dtype);
  if (!kv_dtype) return fail("unknown KV dtype " + arguments.kv_dtype);
  std::ifstream in(arguments.files[1], std::ios::binary);
  std::vector<TokenId> tokens;
  for (int32_t id = 0; in.read(reinterpret_cast<char*>(&id), sizeof(id));) tokens.push_back(TokenId{id});
  Result<ModelFile> file = ModelFile::open(arguments.files[0]);
  if (!file) return fail(file.error().message);
  ThreadTeam team(arguments.n_threads);
  Stream stream(team);
  auto model =
      load_model(std::make_shared<ModelFile>(std::move(file).value()), {.step_tokens = 256, .max_rows = 256}, stream);
  if (!model) return fail(model.error().message);
  reference::select(arguments.kernels == "reference");
  std::ofstream out(arguments.files[2], std::ios::binary);
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  const auto score = score_text(**model, stream, *kv_dtype, tokens, [&](int64_t position, std::span<const float> row) {
    out.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
    if ((position + 1) % 256 == 0) std::cerr << "log_probs: " << position + 1 << " of " << n_tokens << "\n";
  });
  if (!score) return fail(score.error().message);
  if (!out.flush()) return fail("cannot write " + arguments.files[2]);
  std::printf("perplexity %.4f\n", score->perplexity());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      arguments.files.push_back(word);
    } else if (i + 1 == argc) {
      return fail(word + " needs a value");
    } else if (word == "--kernels") {
      arguments.kernels = argv[++i];
    } else if (word == "--kv-dtype") {
      arguments.kv_dtype = argv[++i];
    } else if (word == "--threads") {
      arguments.n_threads = std::max(1, std::atoi(argv[++i]));
    } else {
      return fail("unknown option " + word);
    }
  }
  if (arguments.files.size() != 3) return fail("MODEL TOKENS OUT [--kernels reference] [--kv-dtype f32] [--threads N]");
  return run(arguments);
}
