// EventReader: server-sent events from a stream that comes in pieces of any length. Comments and fields other than
// data are left out; several data lines of one event are joined.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace ibid::load {

class EventReader {
 public:
  // Calls take(std::string data) for each event that is whole now.
  template <typename Take>
  void push(std::string_view piece, Take take) {
    line_.append(piece);
    size_t begin = 0;
    for (size_t end; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      std::string_view line(line_.data() + begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() && has_data_) {
        take(std::exchange(data_, {}));
        has_data_ = false;
      } else if (line.starts_with("data:")) {
        line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
        if (has_data_) data_ += '\n';
        data_.append(line);
        has_data_ = true;
      }
    }
    line_.erase(0, begin);
  }

 private:
  std::string line_;  // what follows the last line break
  std::string data_;
  bool has_data_ = false;
};

}  // namespace ibid::load
