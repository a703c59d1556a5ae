// Vectors of texts, in the forms of OpenAI, Cohere, Ollama and llama.cpp. A vector's norm is the root of the sum of its
// squares, ascending, in double; each value is divided by it and rounded once.
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/json_writer.h"
#include "kernels/math.h"
#include "server/answer/generation.h"
#include "tensor/half.h"

namespace ibid {
namespace {

using Norm = EmbeddingFields::Norm;

double norm_of(std::span<const float> values, Norm norm) {
  double sum = 0;
  for (const float value : values) {
    const double x = std::fabs(static_cast<double>(value));
    // Not fmax, whose reduction g++ 12 for ARM cannot compile.
    sum = norm == Norm::kMaxAbs16 ? std::max(sum, x) : sum + (norm == Norm::kTaxicab ? x : x * x);
  }
  if (norm == Norm::kMaxAbs16) return sum / 32760;
  return norm == Norm::kEuclid ? std::sqrt(sum) : sum;
}

std::vector<float> normed(std::span<const float> values, const EmbeddingFields& fields) {
  if (fields.is_score) {
    const double x = values.empty() ? 0 : static_cast<double>(values.front());
    return {static_cast<float>(fields.norm == Norm::kNone ? x : 1 / (1 + math::exp(-x)))};
  }
  if (fields.dimensions > 0) values = values.first(std::min(values.size(), static_cast<size_t>(fields.dimensions)));
  std::vector<float> out(values.begin(), values.end());
  const double norm = fields.norm == Norm::kNone ? 1 : norm_of(values, fields.norm);
  for (float& value : out) value = norm > 0 ? static_cast<float>(static_cast<double>(value) / norm) : 0;
  return out;
}

void add_bytes(uint32_t bits, int n, bool is_big_endian, std::string& out) {
  for (int i = 0; i < n; ++i) out += static_cast<char>(bits >> 8 * (is_big_endian ? n - 1 - i : i) & 0xff);
}

std::string bytes_of(std::span<const float> values, const EmbeddingFields& fields) {
  using Values = EmbeddingFields::Values;
  std::string out;
  out.reserve(values.size_bytes());
  for (const float value : values) {
    if (fields.values == Values::kF32) add_bytes(std::bit_cast<uint32_t>(value), 4, fields.is_big_endian, out);
    if (fields.values == Values::kF16) add_bytes(float_to_half(value), 2, fields.is_big_endian, out);
    if (fields.values == Values::kBF16) add_bytes(float_to_bf16(value), 2, fields.is_big_endian, out);
  }
  return out;
}

// Floats in base64, which OpenAI's clients ask for; little-endian unless a request specifies otherwise.
std::string base64(std::span<const float> values, const EmbeddingFields& fields) {
  const std::string bytes = bytes_of(values, fields);
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // and a zero after it
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  out.pop_back();
  return out;
}

// A bit for each value, set where it is above 0, the first one highest; Cohere's `binary` is the same less 128.
std::vector<int32_t> packed_signs(std::span<const float> values, bool is_signed) {
  std::vector<int32_t> out((values.size() + 7) / 8, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) out[i / 8] |= 0x80 >> (i % 8);
  }
  for (int32_t& byte : out) byte -= is_signed ? 128 : 0;
  return out;
}

// What the model made of a text: one vector, or one of each of its tokens.
struct Vectors {
  std::vector<float> values;
  bool is_list = false;  // of tokens' vectors
  size_t width = 0;      // of each of these
};

// With `dimensions` each vector is cut.
Vectors vectors_of(const Generation& g, const AnswerChoice& choice) {
  const EmbeddingFields& fields = g.info().embedding;
  const size_t width = fields.pooling == Pooling::kEach ? static_cast<size_t>(g.info().embedding_len) : 0;
  Vectors out{.is_list = width > 0};
  for (std::span<const float> rest = choice.embedding; width > 0 && rest.size() >= width; rest = rest.subspan(width)) {
    const std::vector<float> one = normed(rest.first(width), fields);
    out.width = one.size();
    out.values.insert(out.values.end(), one.begin(), one.end());
  }
  if (width == 0) out.values = normed(choice.embedding, fields);
  return out;
}

void write_vector(std::span<const float> vector, JsonWriter& json) {
  json.begin_array();
  for (const float value : vector) json.single(value);
  json.end_array();
}

// A vector, or a list of them.
void write_values(const Vectors& vectors, JsonWriter& json) {
  if (!vectors.is_list) return write_vector(vectors.values, json);
  json.begin_array();
  for (std::span<const float> rest = vectors.values; !rest.empty(); rest = rest.subspan(vectors.width))
    write_vector(rest.first(vectors.width), json);
  json.end_array();
}

class EmbeddingPrinter : public AnswerPrinter {
 public:
  void write_events(const Generation&, AnswerChoice&, size_t, std::string&) final {}  // it does not stream
  void write_end(const Generation&, std::string&) final {}
};

// OpenAI's, and vLLM's of /pooling, which has an id and the time besides.
class OpenAiEmbeddings final : public EmbeddingPrinter {
 public:
  explicit OpenAiEmbeddings(bool pools) : pools_(pools) {}
  void write_begin(const Generation& g, std::string& out) override {
    JsonWriter json(out);
    json.begin_object();
    if (pools_) json.field("id", g.info().id);
    json.field("object", "list");
    if (pools_) json.field("created", g.info().created);
    out += ",\"data\":[";
  }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override {
    const EmbeddingFields& fields = g.info().embedding;
    const Vectors vectors = vectors_of(g, choice);
    JsonWriter json(out);
    json.begin_object().field("object", pools_ ? "pooling" : "embedding");
    json.field("index", static_cast<int64_t>(index)).key(pools_ ? "data" : "embedding");
    fields.base64 ? static_cast<void>(json.string(base64(vectors.values, fields))) : write_values(vectors, json);
    json.end_object();
  }
  void write_rest(const Generation& g, std::string& out) override {
    const int64_t n = g.prompt_tokens();
    out += "],\"model\":";
    JsonWriter json(out);
    json.string(g.info().model).key("usage").begin_object().field("prompt_tokens", n).field("total_tokens", n);
    json.end_object().end_object();
  }

 private:
  const bool pools_;
};

// llama.cpp's: a list of vectors of each text.
class LlamaEmbedding final : public EmbeddingPrinter {
 public:
  void write_begin(const Generation&, std::string& out) override { out += '['; }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override {
    const Vectors vectors = vectors_of(g, choice);
    JsonWriter json(out);
    json.begin_object().field("index", static_cast<int64_t>(index)).key("embedding");
    if (!vectors.is_list) json.begin_array();
    write_values(vectors, json);
    if (!vectors.is_list) json.end_array();
    json.end_object();
  }
  void write_rest(const Generation&, std::string& out) override { out += ']'; }
};

class OllamaEmbed final : public EmbeddingPrinter {
 public:
  void write_begin(const Generation& g, std::string& out) override {
    JsonWriter(out).begin_object().field("model", g.info().model).key("embeddings");
    out += '[';
  }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t, std::string& out) override {
    JsonWriter json(out);
    write_values(vectors_of(g, choice), json);
  }
  void write_rest(const Generation& g, std::string& out) override {
    const double now = g.info().clock != nullptr ? g.info().clock->now() : g.info().arrived;
    out += "],\"total_duration\":" + std::to_string(static_cast<int64_t>(g.times(now).total * 1e9)) +
           ",\"load_duration\":0,\"prompt_eval_count\":" + std::to_string(g.prompt_tokens()) + "}";
  }
};

class OllamaEmbeddings final : public EmbeddingPrinter {
 public:
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t, std::string& out) override {
    JsonWriter json(out);
    json.begin_object().key("embedding");
    write_values(vectors_of(g, choice), json);
    json.end_object();
  }
};

// Cohere's has all texts' vectors of a type together.
class CohereEmbed final : public EmbeddingPrinter {
 public:
  std::string_view between_choices() const override { return ""; }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t, std::string&) override {
    const EmbeddingFields& fields = g.info().embedding;
    const Vectors vectors = vectors_of(g, choice);
    const std::vector<std::string>& types = fields.types;
    kept_.resize(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      std::string& out = kept_[i];
      if (!out.empty()) out += ',';
      if (types[i] == "base64") {
        out += '"' + base64(vectors.values, fields) + '"';
        continue;
      }
      JsonWriter json(out);
      if (types[i] == "float") {
        write_vector(vectors.values, json);
        continue;
      }
      json.begin_array();
      for (const int32_t byte : packed_signs(vectors.values, types[i] == "binary")) json.integer(byte);
      json.end_array();
    }
  }
  void write_rest(const Generation& g, std::string& out) override {
    const EmbeddingFields& fields = g.info().embedding;
    JsonWriter json(out);
    json.begin_object().field("id", g.info().id).key("embeddings").begin_object();
    for (size_t i = 0; i < kept_.size(); ++i) json.key(fields.types[i]).raw("[" + kept_[i] + "]");
    json.end_object().key("texts").begin_array();
    for (const std::string& text : fields.texts) json.string(text);
    json.end_array().key("meta").begin_object().key("api_version").begin_object().field("version", "2").end_object();
    json.key("billed_units").begin_object().field("input_tokens", int64_t{g.prompt_tokens()});
    json.field("image_tokens", int64_t{0}).end_object().end_object();
    json.field("response_type", "embeddings_by_type").end_object();
  }

 private:
  std::vector<std::string> kept_;  // by type: the vectors, with commas between
};

}  // namespace

std::unique_ptr<AnswerPrinter> make_embeddings_printer() { return std::make_unique<OpenAiEmbeddings>(false); }
std::unique_ptr<AnswerPrinter> make_pooling_printer() { return std::make_unique<OpenAiEmbeddings>(true); }
std::unique_ptr<AnswerPrinter> make_ollama_embed_printer() { return std::make_unique<OllamaEmbed>(); }
std::unique_ptr<AnswerPrinter> make_ollama_embeddings_printer() { return std::make_unique<OllamaEmbeddings>(); }
std::unique_ptr<AnswerPrinter> make_llama_embedding_printer() { return std::make_unique<LlamaEmbedding>(); }
std::unique_ptr<AnswerPrinter> make_cohere_embed_printer() { return std::make_unique<CohereEmbed>(); }

}  // namespace ibid
