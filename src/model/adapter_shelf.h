// AdapterShelf: the adapters of a loaded model by their names, as operators and clients load and unload them at run
// time. A name that is loaded again, or unloaded, leaves the answers under way as they are: each holds its adapter
// until it ends. All members from any thread; load() reads files and packs, one at a time, on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/adapters.h"

namespace ibid {

class AdapterShelf {
 public:
  using Read = std::function<Result<std::shared_ptr<const Adapter>>(const std::string& path)>;
  // `table` outlives this and all that it gave out.
  AdapterShelf(AdapterTable& table, Read read) : table_(table), read_(std::move(read)) {}

  struct Entry {
    std::string name, path;
    int64_t created = 0;  // seconds since 1970
    std::shared_ptr<const PlacedAdapter> placed;
    bool is_in_use = false;  // by a request, when the list was made
  };
  // kInvalid: the name is taken (unless it `replaces`) or cannot be one.
  Status load(const std::string& name, const std::string& path, bool replaces = false);
  Status unload(std::string_view name);  // kNotFound: there is none
  // Null: there is none.
  std::shared_ptr<const PlacedAdapter> find(std::string_view name) const;
  std::shared_ptr<const PlacedAdapter> find_digest(std::string_view digest) const;
  std::vector<Entry> list() const;  // in the order in which they were loaded
  int32_t n_slots() const { return table_.sizes().n_slots; }

 private:
  AdapterTable& table_;
  const Read read_;
  std::mutex loading_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace ibid
