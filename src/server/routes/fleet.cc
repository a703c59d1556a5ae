#include "server/routes/fleet.h"

#include <algorithm>
#include <utility>

#include "base/quoted.h"
#include "base/thread_name.h"
#include "server/routes/front_door.h"

namespace ibid {

struct Fleet::Entry {
  FleetModel model;
  std::unique_ptr<ModelService> service;
  std::unique_ptr<Backend> backend;  // null: it is not loaded
  bool is_leaving = false;
  bool is_unwanted = false;          // by who used it last
  bool never_fits = false;           // as was seen when nothing else was loaded
  std::optional<Error> known_fault;  // of its file, as it was then
  std::string faulty_version;
  std::optional<std::string> first_user;  // tenant, since it was loaded
  bool has_other_users = false;
  int64_t last_use = 0;  // the fleet's n_uses_ then
  int64_t n_loads = 0, n_unloads = 0, bytes = 0;
  int32_t n_users = 0;
  ModelInfo info;
  std::vector<std::string> capabilities;
  EngineStats past;  // counters of engines that are gone
};

void add_stats(const EngineStats& more, EngineStats& to) {
  for (const auto count :
       {&EngineStats::n_steps,          &EngineStats::slots_unfilled,  &EngineStats::n_blocks_down,
        &EngineStats::n_blocks_up,      &EngineStats::prompt_tokens,   &EngineStats::cached_tokens,
        &EngineStats::generated_tokens, &EngineStats::n_drafts,        &EngineStats::drafted_tokens,
        &EngineStats::accepted_tokens,  &EngineStats::n_preemptions,   &EngineStats::n_evictions,
        &EngineStats::evicted_tokens,   &EngineStats::n_finished,      &EngineStats::n_cancelled,
        &EngineStats::n_failed,         &EngineStats::n_overdue,       &EngineStats::n_states_down,
        &EngineStats::n_states_up,      &EngineStats::n_snapshot_hits, &EngineStats::tokens_without_snapshot})
    to.*count += more.*count;
  for (const auto count :
       {&EngineStats::n_running, &EngineStats::n_waiting, &EngineStats::blocks_total, &EngineStats::blocks_free,
        &EngineStats::blocks_cached, &EngineStats::blocks_in_use, &EngineStats::blocks_shared,
        &EngineStats::host_blocks_total, &EngineStats::host_blocks_cached, &EngineStats::states_total,
        &EngineStats::states_free, &EngineStats::states_cached, &EngineStats::states_in_use, &EngineStats::n_snapshots,
        &EngineStats::host_states_total, &EngineStats::host_states_cached})
    to.*count += more.*count;
  for (size_t i = 0; i < to.accepted_at.size(); ++i) to.accepted_at[i] += more.accepted_at[i];
  to.queue_tokens += more.queue_tokens;
  to.first_token_seconds = std::max(to.first_token_seconds, more.first_token_seconds);
}

namespace {

// Of an engine that is gone its counters stay, and nothing is in it any more.
EngineStats counters_of(EngineStats stats) {
  stats.slots_unfilled = 0;
  stats.n_running = stats.n_waiting = stats.blocks_total = stats.blocks_free = stats.blocks_cached = 0;
  stats.blocks_in_use = stats.blocks_shared = stats.host_blocks_total = stats.host_blocks_cached = 0;
  stats.states_total = stats.states_free = stats.states_cached = stats.states_in_use = stats.n_snapshots = 0;
  stats.host_states_total = stats.host_states_cached = 0;
  stats.queue_tokens = 0;
  stats.first_token_seconds = 0;
  return stats;
}

}  // namespace

Fleet::Fleet(FleetOptions options, FrontDoor& front)
    : memory_bytes_(options.memory_bytes), max_loaded_(options.max_loaded) {
  for (FleetModel& model : options.models) {
    auto entry = std::make_unique<Entry>();
    entry->info.name = model.name;
    entry->service = front.make_service(entries_.empty());
    entry->model = std::move(model);
    entries_.push_back(std::move(entry));
  }
  thread_ = std::thread([this] {
    name_thread("ibid-load");
    run();
  });
}

Fleet::~Fleet() {
  stop();
  join();
  std::unique_lock lock(mutex_);
  for (const auto& entry : entries_) unload(*entry, lock);
}

void Fleet::post(std::string model, std::string tenant, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(model), std::move(tenant), std::move(work)});
  changed_.notify_all();
}

void Fleet::on_gone() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

// The oldest of the tenant whose turn was longest ago, and all others that wait for the same model.
std::vector<Fleet::Waiting> Fleet::take_turn() {
  const auto last_turn = [&](const Waiting& w) {
    const auto known = turns_.find(w.tenant);
    return known != turns_.end() ? known->second : 0;
  };
  const auto next = std::ranges::min_element(waiting_, {}, last_turn);
  turns_[next->tenant] = ++n_turns_;
  const std::string model = next->model;
  std::vector<Waiting> turn;
  const auto others =
      std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.model == model; });
  turn.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(others));
  waiting_.erase(waiting_.begin(), others);
  return turn;
}

void Fleet::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty() || is_ending_ || first_unwanted() != nullptr; });
    if (Entry* unwanted = first_unwanted()) {
      unload(*unwanted, lock);
      continue;
    }
    if (waiting_.empty()) return;
    std::vector<Waiting> turn = take_turn();
    lock.unlock();
    for (Waiting& waiting : turn) waiting.work();
    turn.clear();
    lock.lock();
  }
}

void Fleet::join() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool Fleet::let_go(std::string_view model, const std::string& tenant, bool is_admin) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(model);
  if (entry == nullptr || entry->backend == nullptr) return true;
  const bool is_own = !entry->has_other_users && entry->first_user == tenant;
  if (!is_own && !is_admin) return false;
  entry->is_unwanted = true;
  changed_.notify_all();
  return true;
}

// A model that is no longer in use.
Fleet::Entry* Fleet::first_unwanted() {
  for (const auto& entry : entries_) {
    if (entry->is_unwanted && entry->backend != nullptr && entry->n_users == 0) return entry.get();
  }
  return nullptr;
}

Fleet::Entry* Fleet::find(std::string_view model) const {
  for (const auto& entry : entries_) {
    if (entry->model.name == model) return entry.get();
  }
  return nullptr;
}

ModelInfo Fleet::info(std::string_view model) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(model);
  return entry != nullptr ? entry->info : ModelInfo();
}

ModelService& Fleet::service(std::string_view model) const { return *find(model)->service; }

std::string Fleet::model_for(std::string_view name) const {
  if (name.empty()) return entries_.front()->model.name;
  constexpr std::string_view kLatest = ":latest";
  for (const bool is_trimmed : {false, true}) {
    if (is_trimmed && !name.ends_with(kLatest)) break;
    if (is_trimmed) name.remove_suffix(kLatest.size());
    for (const auto& entry : entries_) {
      if (entry->model.name == name || std::ranges::find(entry->model.aliases, name) != entry->model.aliases.end())
        return entry->model.name;
    }
  }
  return {};
}

std::shared_ptr<ModelUse> Fleet::use_locked(Entry& entry, const std::string& tenant) {
  auto use = std::shared_ptr<ModelUse>(new ModelUse{entry.service.get()}, [this, &entry](ModelUse* gone) {
    delete gone;
    const std::lock_guard lock(mutex_);
    if (--entry.n_users == 0) changed_.notify_all();
  });
  ++entry.n_users;
  if (!entry.first_user) entry.first_user = tenant;
  entry.has_other_users = entry.has_other_users || entry.first_user != tenant;
  entry.is_unwanted = false;
  entry.last_use = ++n_uses_;
  return use;
}

std::shared_ptr<ModelUse> Fleet::use(std::string_view model, const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(model);
  if (entry == nullptr || entry->backend == nullptr || entry->is_leaving) return nullptr;
  return use_locked(*entry, tenant);
}

// Who is idle goes first; of those (or of all, where none is) whom the tenant that asks has used alone, so that its
// ever new models make room for each other; and of those who was used least recently.
Fleet::Entry* Fleet::victim_for(const Entry& wanted, const std::string& tenant) {
  Entry* victim = nullptr;
  const auto is_own = [&](const Entry& e) { return !e.has_other_users && e.first_user == tenant; };
  const auto is_better = [&](const Entry& a, const Entry& b) {
    if ((a.n_users == 0) != (b.n_users == 0)) return a.n_users == 0;
    return is_own(a) != is_own(b) ? is_own(a) : a.last_use < b.last_use;
  };
  for (const auto& entry : entries_) {
    if (entry.get() == &wanted || entry->backend == nullptr) continue;
    if (victim == nullptr || is_better(*entry, *victim)) victim = entry.get();
  }
  return victim;
}

namespace {

// Of what holds as long as the file is the same; the rest is of the machine's present state.
bool is_of_file(const Error& error) {
  return error.kind == ErrorKind::kInvalid || error.kind == ErrorKind::kUnsupported ||
         error.kind == ErrorKind::kNotFound || error.kind == ErrorKind::kExhausted;
}

std::string version_of(const FleetModel& model) { return model.version ? model.version() : std::string(); }

}  // namespace

std::optional<Error> Fleet::known_fault(std::string_view model) {
  std::unique_lock lock(mutex_);
  Entry* entry = find(model);
  if (entry == nullptr || entry->backend != nullptr || !entry->known_fault) return std::nullopt;
  lock.unlock();
  const std::string version = version_of(entry->model);
  lock.lock();
  if (!entry->known_fault || version != entry->faulty_version) return std::nullopt;
  return entry->known_fault;
}

// The error that requests receive; it is remembered if another try would find the same.
Error Fleet::fault(Entry& entry, const Error& error, const std::string& version) const {
  const Error out =
      unavailable("The model " + in_quotes(entry.model.name) + " cannot be loaded: " + error.message, "model");
  if (is_of_file(error) && !version.empty()) {
    entry.known_fault = out;
    entry.faulty_version = version;
  }
  return out;
}

Result<std::shared_ptr<ModelUse>> Fleet::load(std::string_view model, const FleetClient& client) {
  if (const std::optional<Error> known = known_fault(model)) return *known;
  const auto is_gone = [&] { return client.is_gone && client.is_gone(); };
  std::unique_lock lock(mutex_);
  Entry* entry = find(model);
  if (entry == nullptr) return not_found("There is no model " + in_quotes(model) + ".", "model");
  bool is_checked = false;
  while (true) {
    if (is_stopping_) return unavailable("The server is shutting down.");
    if (is_gone()) return unavailable("No request waits for the model any more.");
    if (entry->backend != nullptr) return use_locked(*entry, client.tenant);
    int64_t left = memory_bytes_;
    for (const auto& other : entries_) left -= other->bytes;
    const auto n_loaded = std::ranges::count_if(entries_, [](const auto& e) { return e->backend != nullptr; });
    const bool has_place = max_loaded_ == 0 || n_loaded < max_loaded_;
    lock.unlock();
    const std::string version = version_of(entry->model);  // before anything of it is read
    Result<LoadedModel> loaded = exhausted("The models that are loaded have all of the memory.");
    if (has_place && (memory_bytes_ == 0 || left > 0)) loaded = entry->model.load(memory_bytes_ == 0 ? 0 : left);
    const bool is_short = !loaded && loaded.error().kind == ErrorKind::kExhausted;
    Status alone;  // whether it could be loaded with nothing beside it
    if (is_short && n_loaded > 0 && !std::exchange(is_checked, true) && entry->model.check)
      alone = entry->model.check(memory_bytes_);
    lock.lock();
    // Where memory has no bound of ours, what is free now is what the others leave.
    if (!alone && (memory_bytes_ > 0 || alone.error().kind != ErrorKind::kExhausted))
      return fault(*entry, alone.error(), version);
    if (loaded) {
      entry->backend = std::move(loaded->backend);
      entry->bytes = loaded->bytes;
      entry->known_fault.reset();
      entry->first_user.reset();
      entry->has_other_users = false;
      ++entry->n_loads;
      entry->info = entry->backend->model();
      entry->service->set_backend(entry->backend.get());
      entry->capabilities = entry->service->capabilities();
      continue;
    }
    if (!is_short) return fault(*entry, loaded.error(), version);
    Entry* victim = entry->never_fits ? nullptr : victim_for(*entry, client.tenant);
    if (victim == nullptr) {  // the machine's memory may be another's now, so this is tried again
      entry->never_fits = true;
      return fault(*entry, loaded.error(), std::string());
    }
    victim->is_leaving = true;
    changed_.wait(lock, [&] { return victim->n_users == 0 || is_stopping_ || is_gone(); });
    victim->is_leaving = false;
    if (victim->n_users == 0 && !is_gone()) unload(*victim, lock);
  }
}

// It is not in use, and will not be while this has the lock or the backend is gone.
void Fleet::unload(Entry& entry, std::unique_lock<std::mutex>& lock) {
  if (entry.backend == nullptr) return;
  std::unique_ptr<Backend> gone = std::move(entry.backend);
  entry.service->drop_backend();
  add_stats(counters_of(gone->stats()), entry.past);
  lock.unlock();  // its engine's thread reports to the service what ends
  gone->stop();
  gone.reset();
  lock.lock();
  entry.bytes = 0;
  ++entry.n_unloads;
}

void Fleet::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  for (const auto& entry : entries_) entry->service->set_draining();
  changed_.notify_all();
}

std::vector<FleetFacts> Fleet::facts() const {
  const std::lock_guard lock(mutex_);
  std::vector<FleetFacts> out;
  for (const auto& e : entries_) {
    out.push_back({e->model.name, e->backend != nullptr, e->info, e->capabilities, e->n_users, e->bytes, e->n_loads,
                   e->n_unloads, e->past});
    if (e->backend != nullptr) add_stats(e->backend->stats(), out.back().stats);
  }
  return out;
}

std::string Fleet::metrics_text() const {
  struct Family {
    const char* name;
    const char* type;
    const char* help;
    int64_t (*value)(const FleetFacts& f);
  };
  static constexpr Family kFamilies[] = {
      {"loaded", "gauge", "1 where the model is loaded.", [](const FleetFacts& f) { return int64_t{f.is_loaded}; }},
      {"memory_bytes", "gauge", "What a loaded model may come to hold.", [](const FleetFacts& f) { return f.bytes; }},
      {"requests", "gauge", "Requests that have the model in use.",
       [](const FleetFacts& f) { return int64_t{f.n_users}; }},
      {"sequences_running", "gauge", "Sequences in the model's steps.",
       [](const FleetFacts& f) { return int64_t{f.stats.n_running}; }},
      {"sequences_waiting", "gauge", "Sequences that wait for its steps.",
       [](const FleetFacts& f) { return int64_t{f.stats.n_waiting}; }},
      {"loads_total", "counter", "Times that it was loaded.", [](const FleetFacts& f) { return f.n_loads; }},
      {"unloads_total", "counter", "Times that it made room.", [](const FleetFacts& f) { return f.n_unloads; }},
      {"steps_total", "counter", "Steps of its engines.", [](const FleetFacts& f) { return f.stats.n_steps; }},
      {"prompt_tokens_total", "counter", "Tokens of prompts.",
       [](const FleetFacts& f) { return f.stats.prompt_tokens; }},
      {"generated_tokens_total", "counter", "Tokens of answers.",
       [](const FleetFacts& f) { return f.stats.generated_tokens; }},
  };
  const std::vector<FleetFacts> all = facts();
  std::string out;
  for (const Family& family : kFamilies) {
    const std::string name = std::string("ibid_model_") + family.name;
    out += "# HELP " + name + " " + family.help + "\n# TYPE " + name + " " + family.type + "\n";
    for (const FleetFacts& f : all) {
      std::string label;
      for (const char c : f.name) label += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
      out += name + "{model=\"" + label + "\"} " + std::to_string(family.value(f)) + "\n";
    }
  }
  return out;
}

}  // namespace ibid
