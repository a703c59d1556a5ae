// Requests for scores of pairs of texts, of Cohere, Jina and vLLM, to completions of no tokens: each pair is a prompt
// of ids, [CLS] first [SEP] second [SEP], as a cross-encoder was trained.
#include <algorithm>
#include <tuple>

#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

constexpr int64_t kLeastPair = 5;  // [CLS] a [SEP] b [SEP]

struct Texts {
  std::vector<std::string> first, second;  // of the first one, or one for each of the second
  std::string first_name, second_name;
};

Result<std::string> read_text(const Json& value, const std::string& where) {
  const Json* text = value.object() != nullptr ? value.find("text") : &value;
  if (text == nullptr || text->string() == nullptr)
    return wrong_value(where, "a text, or an object with one as \"text\"", value);
  return *text->string();
}

// A text or a list of them; at least one.
Result<std::vector<std::string>> read_texts(const Json& body, const std::string& name, const ApiLimits& limits) {
  const Json* value = given(body, name);
  if (value == nullptr) return invalid(name + " is missing; it must be a text or a list of texts.", name);
  std::vector<std::string> out;
  const Json::Array* list = value->array();
  if (list == nullptr) {
    ASSIGN_OR_RETURN(std::string text, read_text(*value, name));
    out.push_back(std::move(text));
    return out;
  }
  if (list->empty() || std::ssize(*list) > limits.max_inputs) {
    return invalid(name + " has " + std::to_string(list->size()) + " texts; 1 to " + std::to_string(limits.max_inputs) +
                       " fit into one request.",
                   name);
  }
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, read_text((*list)[i], name + "[" + std::to_string(i) + "]"));
    out.push_back(std::move(text));
  }
  return out;
}

// Hugging Face's text-embeddings-inference names them texts, and expects an array alone.
bool is_bare(const Json& body) { return given(body, "documents") == nullptr && given(body, "texts") != nullptr; }

// That which a body has of vLLM's names for one side of its pairs; the oldest where it has none.
std::string name_of_pair(const Json& body, std::initializer_list<const char*> names) {
  const auto* found = std::ranges::find_if(names, [&](const char* name) { return given(body, name) != nullptr; });
  return found != names.end() ? *found : *names.begin();
}

Result<Texts> read_pairs(const Json& body, bool reranks, const ApiLimits& limits) {
  Texts out;
  if (reranks) {
    out.first_name = "query", out.second_name = is_bare(body) ? "texts" : "documents";
    const std::string* query = text_at(body, "query");
    if (query == nullptr || query->empty()) return invalid("query is missing; it must be a text.", "query");
    const Json* documents = given(body, out.second_name);
    if (documents == nullptr || documents->array() == nullptr)
      return invalid(out.second_name + " is missing; it must be a list of texts.", out.second_name);
    out.first.push_back(*query);
  } else {
    out.first_name = name_of_pair(body, {"text_1", "queries", "data_1"});
    out.second_name = name_of_pair(body, {"text_2", "documents", "data_2", "items"});
    ASSIGN_OR_RETURN(out.first, read_texts(body, out.first_name, limits));
  }
  ASSIGN_OR_RETURN(out.second, read_texts(body, out.second_name, limits));
  if (out.first.size() != 1 && out.first.size() != out.second.size()) {
    return invalid(out.first_name + " has " + std::to_string(out.first.size()) + " texts and " + out.second_name +
                       " has " + std::to_string(out.second.size()) + "; expected equally many, or one of " +
                       out.first_name + ".",
                   out.first_name);
  }
  return out;
}

Status read_form(const Json& body, RankFields& out) {
  for (const char* name : {"rank_fields", "max_chunks_per_doc"}) {
    if (given(body, name) != nullptr)
      return unsupported(std::string(name) + " is not served; texts are ranked as they are given.", name);
  }
  const auto read_flag = [&](const char* name, bool& flag) -> Status {
    const Json* value = given(body, name);
    if (value == nullptr) return {};
    if (value->boolean() == nullptr) return wrong_value(name, "true or false", *value);
    flag = *value->boolean();
    return {};
  };
  TRY(read_flag("return_documents", out.returns_documents));
  TRY(read_flag("return_text", out.returns_documents));
  bool activates = true;  // vLLM's word
  TRY(read_flag("use_activation", activates));
  out.raw = !activates;
  TRY(read_flag("raw_scores", out.raw));
  if (const Json* value = given(body, "top_n")) {
    ASSIGN_OR_RETURN(const int64_t n, read_integer(*value, 1, INT32_MAX, "top_n"));
    out.top_n = static_cast<int32_t>(n);
  }
  if (const Json* value = given(body, "max_tokens_per_doc")) {
    ASSIGN_OR_RETURN(const int64_t n, read_integer(*value, 0, INT32_MAX, "max_tokens_per_doc"));  // 0: all
    out.max_tokens_per_doc = static_cast<int32_t>(n);
  }
  bool truncates = false;  // text-embeddings-inference's word
  TRY(read_flag("truncate", truncates));
  if (truncates) out.max_pair = -1;
  if (const Json* value = given(body, "truncate_prompt_tokens")) {
    ASSIGN_OR_RETURN(const int64_t n, read_integer(*value, -1, INT32_MAX, "truncate_prompt_tokens"));
    if (n >= 0 && n < kLeastPair) {
      return invalid("truncate_prompt_tokens is " + std::to_string(n) + "; two texts have at least " +
                         std::to_string(kLeastPair) + " tokens, and -1 keeps as many as the model reads.",
                     "truncate_prompt_tokens");
    }
    out.max_pair = static_cast<int32_t>(n);
  }
  return {};
}

// How many tokens stay of two texts: off the end of the longer one until both fit, as transformers' longest_first does.
std::pair<size_t, size_t> cut_pair(size_t most, size_t n_first, size_t n_second) {
  const size_t room = most - 3;  // without [CLS] and both [SEP]
  if (n_first + n_second <= room) return {n_first, n_second};
  const bool is_first_longer = n_first > n_second;
  size_t& longer = is_first_longer ? n_first : n_second;
  size_t& shorter = is_first_longer ? n_second : n_first;
  shorter = std::min(shorter, room / 2);
  longer = room - shorter;
  return {n_first, n_second};
}

Status encode_pairs(const Texts& texts, const Tokenizer& tokenizer, int32_t context_len, RankFields& out) {
  const std::vector<TokenId> around = tokenizer.encode("", {.add_special = true});
  if (around.size() != 2)
    return unsupported("This model's tokenizer does not define what stands between two texts.", texts.first_name);
  const bool is_each = texts.first.size() > 1;
  std::vector<TokenId> first;
  for (size_t i = 0; i < texts.second.size(); ++i) {
    if (i == 0 || is_each) first = tokenizer.encode(texts.first[i], {.add_special = true});
    std::vector<TokenId> second = tokenizer.encode(texts.second[i]);
    if (out.max_tokens_per_doc > 0 && std::ssize(second) > out.max_tokens_per_doc)
      second.resize(static_cast<size_t>(out.max_tokens_per_doc));
    size_t n_first = first.size() - 2, n_second = second.size();
    if (out.max_pair != 0) {
      const int32_t most = out.max_pair > 0 ? std::min(out.max_pair, context_len) : context_len;
      std::tie(n_first, n_second) = cut_pair(static_cast<size_t>(most), n_first, n_second);
    }
    const auto len = static_cast<int64_t>(n_first + n_second + 3);
    if (len > context_len) {
      const std::string where = texts.second_name + "[" + std::to_string(i) + "]";
      return invalid(where + " and its " + texts.first_name + " have " + std::to_string(len) +
                         " tokens together, and this model reads " + std::to_string(context_len) +
                         ". Please reduce the length of the input prompt, or set max_tokens_per_doc or "
                         "truncate_prompt_tokens.",
                     where);
    }
    // Only what stays is copied: a query of megabytes stands before each of thousands of texts.
    std::vector<TokenId> pair(first.begin(), first.begin() + 1 + static_cast<std::ptrdiff_t>(n_first));
    pair.push_back(first.back());
    out.second_text.push_back(static_cast<int32_t>(pair.size()));
    pair.insert(pair.end(), second.begin(), second.begin() + static_cast<std::ptrdiff_t>(n_second));
    pair.push_back(around.back());
    out.pairs.emplace_back(std::move(pair));
  }
  return {};
}

}  // namespace

Result<DialectBody> body_of_rank(const Json& body, bool reranks, const ModelInfo& model, const Tokenizer& tokenizer,
                                 const ApiLimits& limits) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  if (model.n_labels != 1) {
    return unsupported(model.n_labels == 0
                           ? "This model has no head that scores texts; use a cross-encoder (a reranker)."
                           : "This model's head scores " + std::to_string(model.n_labels) +
                                 " labels; texts are ranked by a head that has one.",
                       "model");
  }
  DialectBody out;
  out.endpoint = Endpoint::kCompletions;
  out.embedding.pooling = Pooling::kRank;
  TRY(read_form(body, out.rank));
  out.rank.is_bare = reranks && is_bare(body);
  ASSIGN_OR_RETURN(Texts texts, read_pairs(body, reranks, limits));
  TRY(encode_pairs(texts, tokenizer, model.context_len, out.rank));
  if (out.rank.returns_documents) out.rank.documents = std::move(texts.second);
  out.prompt_name = texts.second_name;
  // Any prompt, in whose place the pairs come.
  out.body =
      Json(Json::Object{{"prompt", Json(std::string("-"))}, {"max_tokens", Json(int64_t{0})}, {"echo", Json(true)}});
  carry(body, out.body, {{"model", "model"}, {"user", "user"}, {"priority", "priority"}});
  return out;
}

}  // namespace ibid
