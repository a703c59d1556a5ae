// Names of members that a schema does not list: all strings but some. As bytes at once, since objects have many names:
// the way by CodeDfa's complement costs ten times as much.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

class OtherNames {
 public:
  explicit OtherNames(Grammar& grammar);
  // The inside of a JSON string that is none of the texts, in CodeDfa::Spelling::kJson. The texts are UTF-8.
  ExprId none_of(std::span<const std::string_view> texts);

 private:
  Grammar& g_;
  std::vector<std::vector<GraphEdge>> edges_;  // of any string's inside, per state, ascending
  std::vector<uint8_t> accepts_;
};

}  // namespace ibid::grammar
