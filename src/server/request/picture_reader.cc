#include "server/request/picture_reader.h"

#include <openssl/evp.h>

#include <algorithm>
#include <optional>

namespace ibid {
namespace {

// The bytes of a base64 text with or without blanks; nullopt: it is none.
std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  std::string packed;
  packed.reserve(text.size());
  std::ranges::copy_if(text, std::back_inserter(packed), [](char c) { return c != '\n' && c != '\r' && c != ' '; });
  if (packed.empty() || packed.size() > (size_t{1} << 30)) return std::nullopt;
  packed.append((4 - packed.size() % 4) % 4, '=');
  std::vector<std::byte> out(packed.size() / 4 * 3);
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(packed.data()), static_cast<int>(packed.size()));
  if (n < 0) return std::nullopt;
  out.resize(static_cast<size_t>(n) -
             static_cast<size_t>(std::min<std::ptrdiff_t>(2, std::ranges::count(packed, '='))));
  return out;
}

Result<TokenId> one_token(const Tokenizer& tokenizer, const char* text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, {.parse_special = true}, ids);
  if (ids.size() == 1) return ids.front();
  return unsupported("the model's vocabulary has no token " + std::string(text) + ", which stands for pictures");
}

}  // namespace

Result<PictureTokens> picture_tokens(TowerKind kind, const Tokenizer& tokenizer) {
  PictureTokens out;
  const char* cell = nullptr;
  switch (kind) {
    case TowerKind::kQwen:
      out.marker = out.shown = cell = "<|image_pad|>";
      break;
    case TowerKind::kGemma3:
      out.marker = "<start_of_image>";
      out.shown = "\n\n<start_of_image><image_soft_token><end_of_image>\n\n";
      cell = "<image_soft_token>";
      break;
    case TowerKind::kGemma4:
      out.marker = cell = "<|image|>";
      out.shown = "<|image><|image|><image|>";
      break;
  }
  TRY(one_token(tokenizer, out.marker.c_str()));
  ASSIGN_OR_RETURN(out.cell, one_token(tokenizer, cell));
  return out;
}

PictureReader::PictureReader(std::shared_ptr<const Tower> tower, Options options)
    : tower_(std::move(tower)), options_(std::move(options)) {}

Result<PictureToEncode> PictureReader::read(std::string_view url, const std::string& where) const {
  std::string_view text = url;
  if (url.starts_with("data:")) {
    const size_t comma = url.find(',');
    if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(";base64"))
      return invalid(where + " is no data URL in base64; expected data:image/png;base64,...", where);
    text = url.substr(comma + 1);
  } else if (url.find("://") != std::string_view::npos) {
    return unsupported(where +
                           " is an address, which this server does not fetch; send the picture itself as a data URL "
                           "(data:image/png;base64,...), or start the server with --allowed-media-domains.",
                       where);
  }
  if (text.size() / 4 * 3 > options_.limits.max_bytes + 3) {
    return invalid(
        where + " has more than " + std::to_string(options_.limits.max_bytes) + " bytes; send a smaller picture.",
        where);
  }
  const std::optional<std::vector<std::byte>> bytes = from_base64(text);
  if (!bytes) return invalid(where + " is not base64.", where);
  return read_bytes(*bytes, where);
}

Result<PictureToEncode> PictureReader::read_bytes(std::span<const std::byte> bytes, const std::string& where) const {
  const auto named = [&where](const Error& error) { return Error{error.kind, where + ": " + error.message, where}; };
  const Result<PictureSize> size = read_picture_size(bytes, options_.limits);
  if (!size) return named(size.error());
  const Result<PatchGrid> grid = patch_grid(options_.rule, *size);
  if (!grid) return named(grid.error());
  const int64_t room = grid->n_patches() * tower_->config().patch_len() * static_cast<int64_t>(sizeof(float));
  if (*waiting_bytes_ + room > options_.max_waiting_bytes && *waiting_bytes_ > 0)
    return exhausted("Too many pictures wait to be read; try again later.");
  *waiting_bytes_ += room;
  std::shared_ptr<void> held(nullptr, [waiting = waiting_bytes_, room](void*) { *waiting -= room; });

  const std::lock_guard lock(decoding_);
  const Result<Picture> picture = decode_picture(bytes, options_.limits);
  if (!picture) return named(picture.error());
  Result<Patches> patches = make_patches(options_.rule, *picture);
  if (!patches) return named(patches.error());
  // Rows follow from the pixels, how they were cut, and the tower.
  const Sha256Digest of_picture = picture_digest(*picture, options_.rule);
  const Sha256Digest digest =
      sha256({std::as_bytes(std::span(of_picture)), std::as_bytes(std::span(tower_->digest()))});
  PictureToEncode out{.grid_rows = static_cast<int32_t>(patches->grid.grid_h),
                      .grid_columns = static_cast<int32_t>(patches->grid.grid_w),
                      .patches = std::move(patches->values),
                      .room = std::move(held)};
  Result<PictureRows> rows = tower_->rows_of(out.grid_rows, out.grid_columns, digest);
  if (!rows) return named(rows.error());
  out.rows = std::make_shared<PictureRows>(*std::move(rows));
  return out;
}

RenderedPrompt PictureReader::show(RenderedPrompt prompt) const {
  const auto& [marker, shown, cell] = options_.tokens;
  if (marker == shown) return prompt;
  std::string text;
  std::vector<TextRange> plain = prompt.plain_ranges;
  size_t from = 0, range = 0;
  for (size_t at = prompt.text.find(marker); at != std::string::npos; at = prompt.text.find(marker, at + 1)) {
    while (range < plain.size() && prompt.plain_ranges[range].end <= at) ++range;
    if (range < plain.size() && prompt.plain_ranges[range].begin < at + marker.size()) continue;  // a user's words
    text.append(prompt.text, from, at - from).append(shown);
    from = at + marker.size();
    for (size_t i = range; i < plain.size(); ++i) {
      plain[i].begin += shown.size() - marker.size();
      plain[i].end += shown.size() - marker.size();
    }
  }
  text.append(prompt.text, from);
  prompt.text = std::move(text);
  prompt.plain_ranges = std::move(plain);
  return prompt;
}

Status PictureReader::place(std::vector<PictureToEncode> pictures, Request& request) const {
  const auto n_shown = static_cast<size_t>(std::ranges::count(request.prompt, options_.tokens.cell));
  if (n_shown != pictures.size()) {
    return invalid("The messages have " + std::to_string(pictures.size()) + " pictures, and the chat template shows " +
                       std::to_string(n_shown) + " of them.",
                   "messages");
  }
  if (pictures.empty()) return {};
  std::vector<TokenId> tokens;
  std::vector<PlacedPicture> placed;
  for (const TokenId token : request.prompt) {
    if (token != options_.tokens.cell) {
      tokens.push_back(token);
      continue;
    }
    const std::shared_ptr<PictureRows>& rows = pictures[placed.size()].rows;
    placed.push_back({.first = static_cast<int32_t>(tokens.size()), .rows = rows});
    tokens.insert(tokens.end(), static_cast<size_t>(rows->n_cells()), token);
  }
  request.prompt = std::move(tokens);
  request.pictures = std::make_shared<const PromptPictures>(std::move(placed));
  request.to_encode = std::make_shared<std::vector<PictureToEncode>>(std::move(pictures));
  return {};
}

}  // namespace ibid
