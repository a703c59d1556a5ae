// Fleet: the models of one server, by name. Each has a ModelService of its own, over an engine that is loaded when a
// request first needs it; if all do not fit into memory, the one that was used least recently makes room. What users
// share (keys, quotas, budgets, metrics, stored responses) is the FrontDoor's.
//
// A holder of a ModelUse has its model: one in use is never unloaded. A model is loaded with all that it will ever hold
// (its weights, its keys and values), and its bytes count until it is unloaded, so that all loaded ones together stay
// within the memory.
//
// Loads happen one at a time, on a thread of the fleet: tenants take turns, and each tenant's loads come in the order
// in which they are first asked for. All that wait for a model when it is loaded are taken with the first of them.
// If all loaded models are in use, the least recently used one is marked as leaving: it gets no new requests, and
// requests for it wait their turn after the load that it makes room for. So neither loses a request, and no stream of
// requests keeps a model out for ever.
//
// None leaves before the file of the model that needs the room has been looked at: what could not be loaded beside
// nothing is refused, and remembered until the file changes.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/request/backend.h"
#include "server/request/options.h"

namespace ibid {

class FrontDoor;
class ModelService;

// A request's hold on a loaded model; let go from any thread.
struct ModelUse {
  ModelService* service = nullptr;
};

// Who asks for a model, and whether anybody still waits for it (null: somebody does).
struct FleetClient {
  std::string tenant;
  std::function<bool()> is_gone = {};
};

struct FleetFacts {
  std::string name;
  bool is_loaded = false;
  ModelInfo info;  // as it was when it was last loaded; before that its name alone
  std::vector<std::string> capabilities;
  int32_t n_users = 0;
  int64_t bytes = 0;  // held now
  int64_t n_loads = 0, n_unloads = 0;
  EngineStats stats;  // counters since the start of the process
};

// Counters are added up, gauges too.
void add_stats(const EngineStats& more, EngineStats& to);

class Fleet {
 public:
  // `front` outlives the fleet. Its memory is for all models together; 0: no bound but what loading itself finds.
  Fleet(FleetOptions options, FrontDoor& front);
  ~Fleet();  // no ModelUse is left

  // The model that answers to a name, in all forms of it ("x:latest" is x); no name is the first model's. Empty: none.
  std::string model_for(std::string_view name) const;
  // Of a model by its own name, loaded or not; there is such a model.
  ModelService& service(std::string_view model) const;
  // By the model's own name. Null: it is not loaded, or is to make room. From any thread; never waits.
  std::shared_ptr<ModelUse> use(std::string_view model, const std::string& tenant = {});
  // The same, loaded first where that is needed; waits for as long as that takes and the client stays. From posted
  // work, and before any.
  Result<std::shared_ptr<ModelUse>> load(std::string_view model, const FleetClient& client = {});
  // As it was when the model was last loaded; before that its name alone.
  ModelInfo info(std::string_view model) const;
  // Why a model that is not loaded cannot be, where that is known and its file is still the same. Reads no file.
  std::optional<Error> known_fault(std::string_view model);
  // A model in use is unloaded when its last use ends, unless another request asks for it before. False:
  // it stays, because others than the tenant have used it since it was loaded; `is_admin` overrules that. From any
  // thread; never waits.
  bool let_go(std::string_view model, const std::string& tenant, bool is_admin);
  // On the fleet's thread, in the tenant's turn: work that begins with load(model).
  void post(std::string model, std::string tenant, std::function<void()> work);
  // A client has gone: requests that wait for its model check again whether it is still needed.
  void on_gone();
  // From now on load() gives an error where it would have to load, so that all work ends soon.
  void stop();
  void join();  // after stop(), and the end of post()

  std::vector<FleetFacts> facts() const;
  // What each model does, in lines of /metrics.
  std::string metrics_text() const;

 private:
  struct Entry;
  struct Waiting {
    std::string model, tenant;
    std::function<void()> work;
  };
  void run();
  std::vector<Waiting> take_turn();
  std::shared_ptr<ModelUse> use_locked(Entry& entry, const std::string& tenant);
  Error fault(Entry& entry, const Error& error, const std::string& version) const;
  void unload(Entry& entry, std::unique_lock<std::mutex>& lock);
  Entry* victim_for(const Entry& wanted, const std::string& tenant);
  Entry* first_unwanted();
  Entry* find(std::string_view model) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Entry>> entries_;
  const int64_t memory_bytes_;
  const int max_loaded_;                  // 0: no bound
  std::vector<Waiting> waiting_;          // the oldest first
  std::map<std::string, int64_t> turns_;  // of tenants, the number of the last one that each had
  int64_t n_turns_ = 0;
  int64_t n_uses_ = 0;
  bool is_stopping_ = false, is_ending_ = false;
  std::thread thread_;
};

}  // namespace ibid
