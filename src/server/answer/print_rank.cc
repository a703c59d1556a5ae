// Scores of pairs of texts, in the forms of Cohere, Jina and vLLM. A score is 1 / (1 + exp(-x)) of what the model's
// head gave, by our own exp, or x itself where raw scores are asked for.
#include <algorithm>

#include "base/json_writer.h"
#include "kernels/math.h"
#include "server/answer/generation.h"

namespace ibid {
namespace {

class RankPrinter final : public AnswerPrinter {
 public:
  explicit RankPrinter(bool reranks) : reranks_(reranks) {}
  void write_events(const Generation&, AnswerChoice&, size_t, std::string&) override {}  // it does not stream
  void write_end(const Generation&, std::string&) override {}
  std::string_view between_choices() const override { return ""; }  // all come at the end, in another order
  void write_choice(const Generation& g, const AnswerChoice& choice, size_t index, std::string&) override {
    const double x = choice.embedding.empty() ? 0 : static_cast<double>(choice.embedding.front());
    scores_.push_back({index, static_cast<float>(g.info().rank.raw ? x : 1 / (1 + math::exp(-x)))});
  }
  void write_rest(const Generation& g, std::string& out) override {
    const RankFields& fields = g.info().rank;
    if (reranks_) {
      // Of equal ones the first first.
      std::ranges::stable_sort(scores_, std::ranges::greater(), &Score::value);
      if (fields.top_n > 0) scores_.resize(std::min(scores_.size(), static_cast<size_t>(fields.top_n)));
    }
    JsonWriter json(out);
    if (fields.is_bare) return write_bare(fields, json);
    json.begin_object().field("id", g.info().id).field("object", "list").field("created", g.info().created);
    json.field("model", g.info().model).key(reranks_ ? "results" : "data").begin_array();
    for (const Score& score : scores_) {
      json.begin_object().field("index", static_cast<int64_t>(score.index));
      if (!reranks_) json.field("object", "score");
      json.key(reranks_ ? "relevance_score" : "score").single(score.value);
      if (fields.returns_documents && reranks_)
        json.key("document").begin_object().field("text", fields.documents[score.index]).end_object();
      json.end_object();
    }
    const int64_t n = g.prompt_tokens();
    json.end_array().key("usage").begin_object().field("prompt_tokens", n).field("total_tokens", n);
    json.end_object().end_object();
  }

 private:
  struct Score {
    size_t index;
    float value;
  };
  void write_bare(const RankFields& fields, JsonWriter& json) const {
    json.begin_array();
    for (const Score& score : scores_) {
      json.begin_object().field("index", static_cast<int64_t>(score.index)).key("score").single(score.value);
      if (fields.returns_documents) json.field("text", fields.documents[score.index]);
      json.end_object();
    }
    json.end_array();
  }
  const bool reranks_;
  std::vector<Score> scores_;
};

}  // namespace

std::unique_ptr<AnswerPrinter> make_rank_printer(bool reranks) { return std::make_unique<RankPrinter>(reranks); }

}  // namespace ibid
