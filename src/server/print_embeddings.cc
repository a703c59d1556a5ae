// Vectors of texts, as OpenAI, Cohere, Ollama and llama.cpp tell them. A vector's norm is the root of the sum of its
// squares, ascending, in double; each value is divided by it and rounded once.
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/json_writer.h"
#include "kernels/math.h"
#include "server/generation.h"
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

// Floats in base64, which OpenAI's clients ask for; little-endian unless a request says otherwise.
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
      case ApiStyle::kPooling:
        JsonWriter(out)
            .begin_object()
            .field("id", g.info().id)
            .field("object", "list")
            .field("created", g.info().created);
        out += ",\"data\":[";
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
    // One vector, or one of each token; with `dimensions` each is cut.
    const size_t width = fields.pooling == Pooling::kEach ? static_cast<size_t>(g.info().embedding_len) : 0;
    std::vector<float> values;
    size_t n_values = 0;  // of a vector
    for (std::span<const float> rest = choice.embedding; width > 0 && rest.size() >= width;
         rest = rest.subspan(width)) {
      const std::vector<float> one = normed(rest.first(width), fields);
      n_values = one.size();
      values.insert(values.end(), one.begin(), one.end());
    }
    if (width == 0) values = normed(choice.embedding, fields);
    JsonWriter json(out);
    const auto write_vector = [&](std::span<const float> vector) {
      json.begin_array();
      for (const float value : vector) json.single(value);
      json.end_array();
    };
    const auto write_values = [&] {
      if (width == 0) return write_vector(values);
      json.begin_array();
      for (std::span<const float> rest = values; !rest.empty(); rest = rest.subspan(n_values))
        write_vector(rest.first(n_values));
      json.end_array();
    };
    switch (style_) {
      case ApiStyle::kCohereEmbed:
        return keep(fields, values);
      case ApiStyle::kEmbeddings:
      case ApiStyle::kPooling: {
        const bool is_openai = style_ == ApiStyle::kEmbeddings;
        json.begin_object().field("object", is_openai ? "embedding" : "pooling");
        json.field("index", static_cast<int64_t>(index)).key(is_openai ? "embedding" : "data");
        fields.base64 ? static_cast<void>(json.string(base64(values, fields))) : write_values();
        json.end_object();
        return;
      }
      case ApiStyle::kLlamaEmbedding:
        json.begin_object().field("index", static_cast<int64_t>(index)).key("embedding");
        if (width == 0) json.begin_array();
        write_values();
        if (width == 0) json.end_array();
        json.end_object();
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
    } else if (style_ == ApiStyle::kEmbeddings || style_ == ApiStyle::kPooling) {
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
  void keep(const EmbeddingFields& fields, std::span<const float> values) {
    const std::vector<std::string>& types = fields.types;
    kept_.resize(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      std::string& out = kept_[i];
      if (!out.empty()) out += ',';
      if (types[i] == "base64") {
        out += '"' + base64(values, fields) + '"';
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
