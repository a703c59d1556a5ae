// PictureReader: from a picture in a request's message to what the model's vision tower takes, and to the tokens of a
// prompt. Bytes of pictures are from outside: they are decoded one picture at a time, under limits of bytes, pixels and
// memory (image/decode.h), and what waits for the tower has a bound.
//
// Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/picture_encoder.h"
#include "engine/state/request.h"
#include "image/decode.h"
#include "image/patches.h"
#include "model/vision/tower.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

// How a model's prompt shows a picture. A template writes `marker`; the prompt has `shown` in its place, in which
// `cell` comes once and stands for all cells.
struct PictureTokens {
  std::string marker, shown;
  TokenId cell = TokenId::kNone;
};
// kUnsupported: the vocabulary has no such tokens.
Result<PictureTokens> picture_tokens(TowerKind kind, const Tokenizer& tokenizer);

class PictureReader {
 public:
  struct Options {
    PatchRule rule;
    PictureTokens tokens;
    DecodeLimits limits;
    int64_t max_waiting_bytes = int64_t{256} << 20;  // of patches
  };
  PictureReader(std::shared_ptr<const Tower> tower, Options options);

  // A data URL (RFC 2397, base64), or the base64 alone. `where` names the field in errors. kExhausted: too many wait.
  Result<PictureToEncode> read(std::string_view url, const std::string& where) const;
  // The bytes of a picture's file.
  Result<PictureToEncode> read_bytes(std::span<const std::byte> bytes, const std::string& where) const;
  // A prompt as the template wrote it, with each marker of its own as the prompt shows a picture. What users wrote is
  // text, whatever they spell.
  RenderedPrompt show(RenderedPrompt prompt) const;
  // Gives each cell token of `request.prompt` as many as its picture has, and the request its pictures. As many cell
  // tokens as pictures.
  Status place(std::vector<PictureToEncode> pictures, Request& request) const;

 private:
  std::shared_ptr<const Tower> tower_;
  const Options options_;
  mutable std::mutex decoding_;
  std::shared_ptr<std::atomic<int64_t>> waiting_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace ibid
