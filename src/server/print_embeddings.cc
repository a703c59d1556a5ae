// Vectors of texts, as OpenAI, Ollama and llama.cpp tell them. A vector's norm is the root of the sum of its squares,
// ascending, in double; each value is divided by it and rounded once.
#include <openssl/evp.h>

#include <bit>
#include <cmath>

#include "base/json_writer.h"
#include "server/generation.h"

namespace ibid {
namespace {

using Norm = EmbeddingFields::Norm;

double norm_of(std::span<const float> values, Norm norm) {
  double sum = 0;
  for (const float value : values) {
    const double x = std::fabs(static_cast<double>(value));
    sum = norm == Norm::kMaxAbs16 ? std::fmax(sum, x) : sum + (norm == Norm::kTaxicab ? x : x * x);
  }
  if (norm == Norm::kMaxAbs16) return sum / 32760;
  return norm == Norm::kEuclid ? std::sqrt(sum) : sum;
}

std::vector<float> normed(std::span<const float> values, const EmbeddingFields& fields) {
  if (fields.dimensions > 0) values = values.first(std::min(values.size(), static_cast<size_t>(fields.dimensions)));
  std::vector<float> out(values.begin(), values.end());
  const double norm = fields.norm == Norm::kNone ? 1 : norm_of(values, fields.norm);
  for (float& value : out) value = norm > 0 ? static_cast<float>(static_cast<double>(value) / norm) : 0;
  return out;
}

// Little-endian floats in base64, which OpenAI's clients ask for.
std::string base64(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(4 * ((values.size_bytes() + 2) / 3) + 1, '\0');  // and a zero behind it
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(values.data()),
                  static_cast<int>(values.size_bytes()));
  out.pop_back();
  return out;
}

class EmbeddingPrinter final : public AnswerPrinter {
 public:
  explicit EmbeddingPrinter(ApiStyle style) : style_(style) {}
  void write_events(const Generation&, AnswerChoice&, size_t, std::string&) override {}  // it does not stream
  void write_end(const Generation&, std::string&) override {}
  void write_begin(const Generation& g, std::string& out) override {
    switch (style_) {
      case ApiStyle::kEmbeddings:
        out += "{\"object\":\"list\",\"data\":[";
        return;
      case ApiStyle::kOllamaEmbed:
        JsonWriter(out).begin_object().field("model", g.info().model).key("embeddings");
        out += '[';
        return;
      case ApiStyle::kLlamaEmbedding:
        out += '[';
        return;
      default:
        return;
    }
  }
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string& out) override {
    const EmbeddingFields& fields = g.info().embedding;
    const std::vector<float> values = normed(choice.embedding, fields);
    JsonWriter json(out);
    const auto write_values = [&] {
      json.begin_array();
      for (const float value : values) json.single(value);
      json.end_array();
    };
    switch (style_) {
      case ApiStyle::kEmbeddings:
        json.begin_object().field("object", "embedding").field("index", static_cast<int64_t>(index)).key("embedding");
        fields.base64 ? static_cast<void>(json.string(base64(values))) : write_values();
        json.end_object();
        return;
      case ApiStyle::kLlamaEmbedding:
        json.begin_object().field("index", static_cast<int64_t>(index)).key("embedding").begin_array();
        write_values();
        json.end_array().end_object();
        return;
      case ApiStyle::kOllamaEmbeddings:
        json.begin_object().key("embedding");
        write_values();
        json.end_object();
        return;
      default:
        write_values();
    }
  }
  void write_rest(const Generation& g, std::string& out) override {
    const int64_t n = g.prompt_tokens();
    if (style_ == ApiStyle::kEmbeddings) {
      out += "],\"model\":";
      JsonWriter json(out);
      json.string(g.info().model).key("usage").begin_object().field("prompt_tokens", n).field("total_tokens", n);
      json.end_object().end_object();
    } else if (style_ == ApiStyle::kOllamaEmbed) {
      const double now = g.info().clock != nullptr ? g.info().clock->now() : g.info().arrived;
      out += "],\"total_duration\":" + std::to_string(static_cast<int64_t>(g.times(now).total * 1e9)) +
             ",\"load_duration\":0,\"prompt_eval_count\":" + std::to_string(n) + "}";
    } else if (style_ == ApiStyle::kLlamaEmbedding) {
      out += ']';
    }
  }

 private:
  const ApiStyle style_;
};

}  // namespace

std::unique_ptr<AnswerPrinter> make_embedding_printer(ApiStyle style) {
  return std::make_unique<EmbeddingPrinter>(style);
}

}  // namespace ibid
