#include "text/tokenizer/json_tables.h"

#include <algorithm>
#include <array>

#include "base/json_cursor.h"
#include "base/quoted.h"
#include "base/utf8.h"
#include "text/tokenizer/merge_table.h"

namespace ibid::json_tables {

namespace {

Error syntax(const JsonCursor& cursor, std::string_view where) {
  Error e = cursor.error();
  return invalid("tokenizer.json, " + std::string(where) + ": " + e.message, std::string(where));
}

Result<ModelSlices> read_model(JsonCursor& c) {
  ModelSlices m;
  std::string key;
  auto text = [&](std::string& out) { c.peek() == 'n' ? c.skip() : c.read_string(out); };
  auto flag = [&](bool& out) { c.peek() == 'n' ? c.skip() : c.read_bool(out); };
  auto number = [&](std::optional<int64_t>& out) {
    int64_t value = 0;
    if (c.peek() == 'n' ? !c.skip() : !c.read_int(value)) return;
    out = value;
  };
  double dropout = 0.0;
  c.begin_object();
  while (c.next_key(key)) {
    if (key == "type")
      text(m.type);
    else if (key == "unk_token")
      text(m.unknown);
    else if (key == "continuing_subword_prefix")
      text(m.prefix);
    else if (key == "end_of_word_suffix")
      text(m.suffix);
    else if (key == "unk_id" && c.peek() != 'n')
      number(m.unknown_id);
    else if (key == "max_input_chars_per_word")
      number(m.max_characters);
    else if (key == "fuse_unk")
      flag(m.fuse_unknown);
    else if (key == "byte_fallback")
      flag(m.byte_fallback);
    else if (key == "ignore_merges")
      flag(m.ignore_merges);
    else if (key == "dropout" && c.peek() != 'n')
      c.read_number(dropout);
    else if (key == "vocab")
      c.skip(&m.vocab);
    else if (key == "merges")
      c.skip(&m.merges);
    else
      c.skip();
    if (c.failed()) break;
  }
  if (c.failed()) return syntax(c, "model");
  if (dropout != 0.0) {
    return unsupported("the BPE model has a dropout; its ids would be random, and ours are not", "model.dropout");
  }
  if (m.vocab.empty()) return invalid("the model of tokenizer.json has no \"vocab\"", "model.vocab");
  if (m.type.empty()) {
    // Older files leave it to the keys.
    m.type = !m.merges.empty() ? "BPE" : m.vocab[0] == '[' ? "Unigram" : m.max_characters ? "WordPiece" : "WordLevel";
  }
  return m;
}

}  // namespace

Result<Slices> read_top(std::string_view json) {
  Slices s;
  JsonCursor cursor(json);
  std::string key;
  cursor.begin_object();
  while (cursor.next_key(key)) {
    std::string_view value;
    if (key == "model") {
      ASSIGN_OR_RETURN(s.model, read_model(cursor));
      continue;
    }
    if (!cursor.skip(&value)) break;
    if (key == "added_tokens") s.added_tokens = value;
    if (key == "normalizer") s.normalizer = value;
    if (key == "pre_tokenizer") s.pre_tokenizer = value;
    if (key == "post_processor") s.post_processor = value;
    if (key == "decoder") s.decoder = value;
  }
  if (cursor.failed() || !cursor.at_end()) {
    if (!cursor.failed()) cursor.fail("the end of the file");
    return syntax(cursor, "file");
  }
  if (!s.model) return invalid("tokenizer.json has no \"model\"; it is no tokenizer", "model");
  return s;
}

Status place(std::vector<std::string>& tokens, std::string_view token, int64_t id, size_t n_tokens) {
  if (id < 0 || id > static_cast<int64_t>(n_tokens * 4 + 1024)) {
    return invalid("the token " + in_quotes(token) + " has the id " + std::to_string(id) +
                       ", which is negative or far beyond what a file of " + std::to_string(n_tokens) +
                       " tokens would number",
                   "model.vocab");
  }
  auto i = static_cast<size_t>(id);
  if (i >= tokens.size()) {
    tokens.reserve(std::max(i + 1, tokens.capacity() < i + 1 ? tokens.capacity() * 2 : 0));
    tokens.resize(i + 1);
  }
  if (!tokens[i].empty() && tokens[i] != token) {
    return invalid(
        "the tokens " + in_quotes(tokens[i]) + " and " + in_quotes(token) + " have the same id " + std::to_string(id),
        "model.vocab");
  }
  tokens[i].assign(token);
  return {};
}

Status read_vocab(std::string_view json, std::vector<std::string>& tokens) {
  JsonCursor c(json);
  std::string_view key;
  std::string storage;
  int64_t id = 0;
  // Ids may come in any order, and a single large one would claim that many places: all are read before any is placed.
  std::vector<std::pair<std::string, int64_t>> listed;
  listed.reserve(json.size() / 14);
  c.begin_object();
  while (c.next_key(key, storage)) {
    if (!c.read_int(id)) break;
    listed.emplace_back(key, id);
  }
  if (c.failed()) return syntax(c, "model.vocab");
  tokens.reserve(listed.size());
  for (const auto& [token, at] : listed) TRY(place(tokens, token, at, listed.size()));
  return {};
}

Status read_scored_vocab(std::string_view json, std::vector<std::string>& tokens, std::vector<double>& scores) {
  JsonCursor c(json);
  std::string token;
  double score = 0.0;
  c.begin_array();
  while (c.next_element()) {
    if (!c.begin_array() || !c.next_element() || !c.read_string(token) || !c.next_element() || !c.read_score(score)) {
      c.fail("a token and its score");
      break;
    }
    if (c.next_element()) c.fail("']'");
    tokens.push_back(token);
    scores.push_back(score);
  }
  if (c.failed()) return syntax(c, "model.vocab");
  return {};
}

Result<std::vector<Merge>> read_merges(std::string_view json, const TokenMap& map, const std::string& prefix) {
  JsonCursor c(json);
  MergeTable table(map, prefix, json.size() / 16);
  auto bad = [](const MergeTable::Fault& f) {
    if (!utf8::is_valid(f.left) || !utf8::is_valid(f.right)) {
      return invalid("merge " + std::to_string(f.rank) + " of tokenizer.json is no valid UTF-8", "model.merges");
    }
    return invalid("merge " + std::to_string(f.rank) + " of tokenizer.json " + f.why + ": " + in_quotes(f.left) +
                       " and " + in_quotes(f.right),
                   "model.merges");
  };
  // Texts with escapes, which live as long as the table's block. What equals a token is valid UTF-8.
  std::array<std::array<std::string, 2>, MergeTable::kBlock> storage;
  c.begin_array();
  while (c.next_element()) {
    std::string_view left, right;
    size_t rank = table.n_added();
    std::array<std::string, 2>& store = storage[rank % MergeTable::kBlock];
    if (c.peek() == '[') {
      c.begin_array();
      if (!c.next_element() || !c.read_bytes(left, store[0]) || !c.next_element() || !c.read_bytes(right, store[1])) {
        c.fail("two tokens");
        break;
      }
      if (c.next_element()) c.fail("']' behind two tokens");
    } else {
      std::string_view line;
      if (!c.read_bytes(line, store[0])) break;
      size_t space = line.find(' ');
      left = line.substr(0, space);
      right = space == line.npos ? "" : line.substr(space + 1);
      if (right.empty() || left.empty() || right.find(' ') != right.npos) {
        return bad({rank, left, right, "is not two tokens with a space between"});
      }
    }
    if (c.failed()) break;
    if (auto fault = table.add(left, right)) return bad(*fault);
  }
  if (c.failed()) return syntax(c, "model.merges");
  if (auto fault = table.finish()) return bad(*fault);
  return table.take();
}

Status read_added(std::string_view json, size_t n_json_bytes, std::vector<AddedToken>& added) {
  if (json.empty()) return {};
  JsonCursor c(json);
  std::string key;
  c.begin_array();
  while (c.next_element()) {
    AddedToken t;
    int64_t id = -1;
    t.normalized = true;
    c.begin_object();
    while (c.next_key(key)) {
      if (key == "id")
        c.read_int(id);
      else if (key == "content")
        c.read_string(t.content);
      else if (key == "single_word")
        c.read_bool(t.single_word);
      else if (key == "lstrip")
        c.read_bool(t.lstrip);
      else if (key == "rstrip")
        c.read_bool(t.rstrip);
      else if (key == "normalized")
        c.read_bool(t.normalized);
      else if (key == "special")
        c.read_bool(t.special);
      else
        c.skip();
      if (c.failed()) break;
    }
    if (c.failed()) break;
    if (t.content.empty()) return invalid("an added token has no content", "added_tokens");
    if (id < 0 || id > static_cast<int64_t>(n_json_bytes / 4 + 1024)) {
      return invalid("the added token " + in_quotes(t.content) + " has the id " + std::to_string(id) +
                         ", which is negative or far beyond what the file can hold",
                     "added_tokens");
    }
    t.id = static_cast<TokenId>(id);
    added.push_back(std::move(t));
    if (added.size() > AddedTokens::kMaxTokens) {
      return unsupported("tokenizer.json has more than " + std::to_string(AddedTokens::kMaxTokens) + " added tokens",
                         "added_tokens");
    }
  }
  if (c.failed()) return syntax(c, "added_tokens");
  return {};
}

}  // namespace ibid::json_tables
