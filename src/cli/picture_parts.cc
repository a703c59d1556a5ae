#include "cli/picture_parts.h"

#include <utility>

namespace ibid::cli {

Result<PictureParts> picture_parts(const host::Loaded& loaded, const host::PictureArgs& args) {
  PictureParts out;
  if (!loaded.tower) return out;
  const host::LoadedTower& tower = *loaded.tower;
  ASSIGN_OR_RETURN(PictureTokens tokens, picture_tokens(tower.config.kind, *loaded.tokenizer));
  out.reader = std::make_shared<const PictureReader>(
      tower.tower, PictureReader::Options{.rule = tower.rule, .tokens = std::move(tokens), .limits = {}});
  out.encoder = std::make_unique<PictureEncoder>(*tower.tower, *loaded.stream, args.kept_bytes);
  return out;
}

}  // namespace ibid::cli
