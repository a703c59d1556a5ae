// LineHistory: the lines that a person typed, kept from one `ibid run` to the next in a file that only its owner may
// read. Each is added as it is typed, so that several processes may share the file.
#pragma once

#include <string>
#include <vector>

namespace ibid::cli {

// $IBID_HISTFILE, where that is set (empty: none is kept); else ibid/history in $XDG_STATE_HOME or ~/.local/state.
std::string line_history_path();

class LineHistory {
 public:
  static constexpr size_t kMost = 1000;  // lines that are kept

  // Empty: nothing is read nor kept. A file that cannot be written is not spoken of: chatting does not need it.
  explicit LineHistory(std::string path) : path_(std::move(path)) {}
  // Oldest first, kMost at most. What is no line of ours is left out.
  std::vector<std::string> read() const;
  void add(const std::string& line) const;

 private:
  std::string path_;
};

}  // namespace ibid::cli
