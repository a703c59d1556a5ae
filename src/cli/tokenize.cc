// Text to ids and back.
#include <fmt/format.h>

#include <cstdio>
#include <sstream>

#include "cli/options/options.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"

namespace ibid::cli {
namespace {

// Bytes that a terminal would act upon, made visible.
std::string printable(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\')
      out += "\\\\";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      out += c;
  }
  return out;
}

// One piece a token, in alternating colours on a terminal and between bars in a pipe.
void print_pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  bool colour = stdout_is_terminal();
  constexpr int kColours[] = {44, 45, 46, 42, 43};
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string piece = printable(tokenizer.token_bytes(ids[i], true));
    if (colour)
      std::printf("\033[30;%dm%s\033[0m", kColours[i % 5], piece.c_str());
    else
      std::printf("%s%s", i == 0 ? "" : "|", piece.c_str());
  }
  std::printf("\n");
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  auto text = host::load_text(options.model, terminal_progress());
  if (!text) return fail(text.error());
  std::vector<TokenId> ids;
  auto read = options.text ? Result<std::string>(*options.text) : text_of_file(options.file);
  if (!read) return fail(read.error());
  text->tokenizer->encode(*read, {.add_special = options.bos, .parse_special = options.special}, ids);
  std::string line;
  for (TokenId id : ids) line += fmt::format("{}{}", line.empty() ? "" : " ", raw(id));
  if (options.pieces)
    print_pieces(*text->tokenizer, ids);
  else
    std::printf("%s\n", line.c_str());
  return kOk;
}

int detokenize(const DetokenizeOptions& options) {
  auto text = host::load_text(options.model, terminal_progress());
  if (!text) return fail(text.error());
  std::vector<TokenId> ids;
  auto read = options.ids ? Result<std::string>(*options.ids) : text_of_file("-");
  if (!read) return fail(read.error());
  std::istringstream words(*read);
  std::string word;
  while (words >> word) {
    char* end = nullptr;
    errno = 0;
    long id = std::strtol(word.c_str(), &end, 10);
    if (*end != '\0' || errno != 0 || id < 0 || id >= text->tokenizer->vocab_size()) {
      return fail(invalid(fmt::format("'{}' is no token id: the vocabulary has ids 0 to {}", printable(word),
                                      text->tokenizer->vocab_size() - 1)));
    }
    ids.push_back(TokenId{static_cast<int32_t>(id)});
  }
  std::string out = text->tokenizer->decode(ids, options.special);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return kOk;
}

}  // namespace ibid::cli
