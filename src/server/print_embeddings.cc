// Vectors of texts, as OpenAI, Cohere, Ollama and llama.cpp tell them. A vector's norm is the root of the sum of its
// squares, ascending, in double; each value is divided by it and rounded once.
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

// A bit for each value, set where it is above 0, the first one highest; Cohere's `binary` is the same less 128.
std::vector<int32_t> packed_signs(std::span<const float> values, bool is_signed) {
  std::vector<int32_t> out((values.size() + 7) / 8, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) out[i / 8] |= 0x80 >> (i % 8);
  }
  for (int32_t& byte : out) byte -= is_signed ? 128 : 0;
  return out;
}

class EmbeddingPrinter final : public AnswerPrinter {
 public:
  explicit EmbeddingPrinter(ApiStyle style) : style_(style) {}
  void write_events(const Generation&, AnswerChoice&, size_t, std::string&) override {}  // it does not stream
  void write_end(const Generation&, std::string&) override {}
  std::string_view between_choices() const override { return style_ == ApiStyle::kCohereEmbed ? "" : ","; }
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
      case ApiStyle::kCohereEmbed:
        return keep(fields.types, values);
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
    if (style_ == ApiStyle::kCohereEmbed) {
      write_kept(g, n, out);
    } else if (style_ == ApiStyle::kEmbeddings) {
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
  // Cohere's answers have all texts' vectors of a type together.
  void keep(const std::vector<std::string>& types, std::span<const float> values) {
    kept_.resize(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      std::string& out = kept_[i];
      if (!out.empty()) out += ',';
      if (types[i] == "base64") {
        out += '"' + base64(values) + '"';
        continue;
      }
      JsonWriter json(out);
      json.begin_array();
      if (types[i] == "float") {
        for (const float value : values) json.single(value);
      } else {
        for (const int32_t byte : packed_signs(values, types[i] == "binary")) json.integer(byte);
      }
      json.end_array();
    }
  }

  void write_kept(const Generation& g, int64_t n_tokens, std::string& out) const {
    const EmbeddingFields& fields = g.info().embedding;
    JsonWriter json(out);
    json.begin_object().field("id", g.info().id).key("embeddings").begin_object();
    for (size_t i = 0; i < kept_.size(); ++i) json.key(fields.types[i]).raw("[" + kept_[i] + "]");
    json.end_object().key("texts").begin_array();
    for (const std::string& text : fields.texts) json.string(text);
    json.end_array().key("meta").begin_object().key("api_version").begin_object().field("version", "2").end_object();
    json.key("billed_units").begin_object().field("input_tokens", n_tokens).field("image_tokens", int64_t{0});
    json.end_object().end_object().field("response_type", "embeddings_by_type").end_object();
  }

  const ApiStyle style_;
  std::vector<std::string> kept_;  // by type: the vectors, with commas between
};

}  // namespace

std::unique_ptr<AnswerPrinter> make_embedding_printer(ApiStyle style) {
  return std::make_unique<EmbeddingPrinter>(style);
}

}  // namespace ibid
