// ibid spec build-store: texts to a file that `--spec store:FILE` drafts from. Files are read in pieces: what is held
// grows with their tokens, eight bytes each, and --max-tokens bounds those.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/quoted.h"
#include "base/utf8.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"

namespace ibid::cli {
namespace {

constexpr size_t kPiece = 64 << 10;    // bytes of a text that are made into tokens at once
constexpr size_t kMaxLine = 16 << 20;  // of a .jsonl

// Pieces that end with `end` as far as the file has any within `most` bytes.
class PieceReader {
 public:
  static Result<PieceReader> open(const std::string& path) {
    PieceReader reader;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
      return invalid(in_quotes(path) + " is a folder; a file of text was expected.");
    reader.file_.reset(std::fopen(path.c_str(), "rb"));
    if (!reader.file_) return not_found("cannot open " + path + ": " + std::strerror(errno) + "; check the path");
    return reader;
  }
  // Empty: the file has ended, or can be read no further.
  std::string_view next(size_t most, bool first_line_alone) {
    held_.erase(0, n_given_);
    n_given_ = 0;
    size_t at = first_line_alone ? held_.find('\n') : std::string::npos;
    while (at == std::string::npos && held_.size() < most && !has_ended_) {
      const size_t n_before = held_.size();
      held_.resize(std::min(most, n_before + kPiece));
      const size_t n = std::fread(held_.data() + n_before, 1, held_.size() - n_before, file_.get());
      has_ended_ = n < held_.size() - n_before;
      held_.resize(n_before + n);
      if (first_line_alone) at = held_.find('\n', n_before);
    }
    if (!first_line_alone) at = held_.rfind('\n');
    if (at != std::string::npos && (first_line_alone || !has_ended_))
      n_given_ = at + 1;
    else
      n_given_ = held_.size() - (has_ended_ ? 0 : n_cut_short());
    return {held_.data(), n_given_};
  }
  bool has_failed() const { return std::ferror(file_.get()) != 0; }

 private:
  // Bytes at the end of what is held that begin a character and do not end it.
  size_t n_cut_short() const {
    for (size_t n = 1; n <= 3 && n < held_.size(); ++n) {
      if (utf8::is_unfinished(std::string_view(held_).substr(held_.size() - n))) return n;
    }
    return 0;
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
  std::string held_;
  size_t n_given_ = 0;
  bool has_ended_ = false;
};

class StoreBuilder {
 public:
  StoreBuilder(const Tokenizer& tokenizer, int64_t max_tokens) : tokenizer_(tokenizer), writer_(max_tokens) {}

  Status read(const std::string& path) {
    ASSIGN_OR_RETURN(PieceReader reader, PieceReader::open(path));
    const bool has_lines = path.ends_with(".jsonl");
    for (int64_t line = 1; !is_full_; ++line) {
      const std::string_view piece = reader.next(has_lines ? kMaxLine : kPiece, has_lines);
      if (piece.empty()) break;
      if (!has_lines) {
        add_text(piece);
        continue;
      }
      const std::string where = in_quotes(path) + ", line " + std::to_string(line);
      if (piece.size() == kMaxLine && piece.back() != '\n')
        return invalid(fmt::format("{} is longer than {} MiB.", where, kMaxLine >> 20));
      if (piece.find_first_not_of(" \t\r\n") != std::string_view::npos) TRY(add_line(piece, where));
    }
    writer_.end_text();
    if (reader.has_failed()) return unavailable("cannot read " + path + ": " + std::strerror(errno));
    return {};
  }
  bool is_full() const { return is_full_; }
  TextStoreWriter& writer() { return writer_; }

 private:
  void add_text(std::string_view text) {
    ids_.clear();
    tokenizer_.encode(text, {}, ids_);
    is_full_ |= !writer_.add(ids_);
  }
  void add_whole_text(std::string_view text) {
    add_text(text);
    writer_.end_text();
  }
  // A list of ids, as given: it is not tokenized again.
  Status add_ids(const Json::Array& list, const std::string& where) {
    ids_.clear();
    for (const Json& value : list) {
      const int64_t* id = value.integer();
      if (id == nullptr || *id < 0 || *id >= tokenizer_.vocab_size())
        return invalid(fmt::format("{} has a list with {}; ids of the vocabulary are 0 to {}.", where,
                                   id == nullptr ? value.kind() : std::to_string(*id), tokenizer_.vocab_size() - 1));
      ids_.push_back(TokenId{static_cast<int32_t>(*id)});
    }
    is_full_ |= !writer_.add(ids_);
    return {};
  }
  // A text, or ids; those of a prompt go on in its answer, whose text stands alone, for a template stands between.
  Status add_value(const Json& value, const std::string& where) {
    if (value.array() != nullptr) return add_ids(*value.array(), where);
    if (value.string() == nullptr)
      return invalid(fmt::format("{} has {} where a text or a list of ids was expected.", where, value.kind()));
    writer_.end_text();
    add_whole_text(*value.string());
    return {};
  }
  Status add_line(std::string_view text, const std::string& where) {
    ASSIGN_OR_RETURN(const Json line, parse_json(text, where));
    if (line.string() != nullptr) return add_whole_text(*line.string()), Status();
    bool has_any = false;
    for (const char* key : {"text", "prompt", "answer", "completion", "response"}) {
      const Json* value = line.find(key);
      if (value == nullptr) continue;
      TRY(add_value(*value, where));
      has_any = true;
    }
    writer_.end_text();
    const Json* messages = line.find("messages");
    if (messages != nullptr && messages->array() != nullptr) {
      for (const Json& message : *messages->array()) {
        const Json* content = message.find("content");
        if (content == nullptr || content->string() == nullptr) continue;
        add_whole_text(*content->string());
        has_any = true;
      }
    }
    if (has_any) return {};
    return invalid(where + " has none of text, prompt, answer, completion, response and messages.");
  }

  const Tokenizer& tokenizer_;
  TextStoreWriter writer_;
  std::vector<TokenId> ids_;
  bool is_full_ = false;
};

}  // namespace

int build_store(const BuildStoreOptions& options) {
  auto text = host::load_text(options.model, terminal_progress());
  if (!text) return fail(text.error());
  StoreBuilder builder(*text->tokenizer, options.max_tokens);
  for (const std::string& path : options.files) {
    if (const Status read = builder.read(path); !read) return fail(read.error());
  }
  if (builder.is_full()) {
    std::fprintf(stderr, "warning: --max-tokens %ld is reached; what follows is left out.\n",
                 static_cast<long>(options.max_tokens));
  }
  TextStoreWriter& writer = builder.writer();
  const std::string name = std::filesystem::path(text->path).filename().string();
  if (const Status written = writer.write(options.out, text->tokenizer->vocabulary(), name); !written)
    return fail(written.error());
  std::error_code ignored;
  std::printf("%s: %ld tokens of %ld texts, %ju bytes\n", options.out.c_str(), static_cast<long>(writer.n_tokens()),
              static_cast<long>(writer.n_texts()),
              static_cast<uintmax_t>(std::filesystem::file_size(options.out, ignored)));
  return kOk;
}

}  // namespace ibid::cli
