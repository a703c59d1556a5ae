#include "server/fleet.h"

#include <algorithm>

#include "base/quoted.h"
#include "base/thread_name.h"
#include "server/service.h"

namespace ibid {

struct Fleet::Entry {
  FleetModel model;
  std::unique_ptr<Service> service;
  std::unique_ptr<Backend> backend;  // null: it is not loaded
  bool is_leaving = false;
  bool is_unwanted = false;  // by who used it last
  bool never_fits = false;   // as was seen when nothing else was loaded
  int64_t last_use = 0;      // the fleet's n_uses_ then
  int64_t n_loads = 0, n_unloads = 0, bytes = 0;
  int32_t n_users = 0;
  ModelInfo info;
  std::vector<std::string> capabilities;
  EngineStats past;  // counters of engines that are gone
};

void add_stats(const EngineStats& more, EngineStats& to) {
  for (const auto count : {&EngineStats::n_steps, &EngineStats::slots_unfilled, &EngineStats::n_blocks_down,
                           &EngineStats::n_blocks_up, &EngineStats::prompt_tokens, &EngineStats::cached_tokens,
                           &EngineStats::generated_tokens, &EngineStats::n_drafts, &EngineStats::drafted_tokens,
                           &EngineStats::accepted_tokens, &EngineStats::n_preemptions, &EngineStats::n_finished,
                           &EngineStats::n_cancelled, &EngineStats::n_failed, &EngineStats::n_overdue})
    to.*count += more.*count;
  for (const auto count :
       {&EngineStats::n_running, &EngineStats::n_waiting, &EngineStats::blocks_total, &EngineStats::blocks_free,
        &EngineStats::blocks_cached, &EngineStats::blocks_in_use, &EngineStats::blocks_shared,
        &EngineStats::host_blocks_total, &EngineStats::host_blocks_cached})
    to.*count += more.*count;
  for (size_t i = 0; i < to.accepted_at.size(); ++i) to.accepted_at[i] += more.accepted_at[i];
}

namespace {

// Of an engine that is gone its counters stay, and nothing is in it any more.
EngineStats counters_of(EngineStats stats) {
  stats.slots_unfilled = 0;
  stats.n_running = stats.n_waiting = stats.blocks_total = stats.blocks_free = stats.blocks_cached = 0;
  stats.blocks_in_use = stats.blocks_shared = stats.host_blocks_total = stats.host_blocks_cached = 0;
  return stats;
}

}  // namespace

Fleet::Fleet(FleetOptions options, Service& front)
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

void Fleet::post(std::string model, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(model), std::move(work)});
  changed_.notify_all();
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
    const std::string model = waiting_.front().model;
    std::vector<Waiting> turn;
    const auto others =
        std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.model == model; });
    turn.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(others));
    waiting_.erase(waiting_.begin(), others);
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

void Fleet::let_go(std::string_view model) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(model)) entry->is_unwanted = true;
  changed_.notify_all();
}

// Whom nobody uses.
Fleet::Entry* Fleet::first_unwanted() {
  for (const auto& entry : entries_) {
    if (entry->is_unwanted && entry->backend != nullptr && entry->n_users == 0) return entry.get();
  }
  return nullptr;
}

Fleet::Entry* Fleet::find(std::string_view model) {
  for (const auto& entry : entries_) {
    if (entry->model.name == model) return entry.get();
  }
  return nullptr;
}

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

std::shared_ptr<ModelUse> Fleet::use_locked(Entry& entry) {
  auto use = std::shared_ptr<ModelUse>(new ModelUse{entry.service.get()}, [this, &entry](ModelUse* gone) {
    delete gone;
    const std::lock_guard lock(mutex_);
    if (--entry.n_users == 0) changed_.notify_all();
  });
  ++entry.n_users;
  entry.is_unwanted = false;
  entry.last_use = ++n_uses_;
  return use;
}

std::shared_ptr<ModelUse> Fleet::use(std::string_view model) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(model);
  if (entry == nullptr || entry->backend == nullptr || entry->is_leaving) return nullptr;
  return use_locked(*entry);
}

// Who is idle goes first, and of those (or of all, where none is) who was used least recently.
Fleet::Entry* Fleet::victim_for(const Entry& wanted) {
  Entry* victim = nullptr;
  const auto is_better = [](const Entry& a, const Entry& b) {
    return (a.n_users == 0) != (b.n_users == 0) ? a.n_users == 0 : a.last_use < b.last_use;
  };
  for (const auto& entry : entries_) {
    if (entry.get() == &wanted || entry->backend == nullptr) continue;
    if (victim == nullptr || is_better(*entry, *victim)) victim = entry.get();
  }
  return victim;
}

Result<std::shared_ptr<ModelUse>> Fleet::load(std::string_view model) {
  std::unique_lock lock(mutex_);
  Entry* entry = find(model);
  if (entry == nullptr) return not_found("There is no model " + in_quotes(model) + ".", "model");
  while (true) {
    if (is_stopping_) return unavailable("The server is shutting down.");
    if (entry->backend != nullptr) return use_locked(*entry);
    int64_t left = memory_bytes_;
    for (const auto& other : entries_) left -= other->bytes;
    const auto n_loaded = std::ranges::count_if(entries_, [](const auto& e) { return e->backend != nullptr; });
    const bool has_place = max_loaded_ == 0 || n_loaded < max_loaded_;
    lock.unlock();
    Result<LoadedModel> loaded = exhausted("The models that are loaded have all of the memory.");
    if (has_place && (memory_bytes_ == 0 || left > 0)) loaded = entry->model.load(memory_bytes_ == 0 ? 0 : left);
    lock.lock();
    if (loaded) {
      entry->backend = std::move(loaded->backend);
      entry->bytes = loaded->bytes;
      ++entry->n_loads;
      entry->info = entry->backend->model();
      entry->service->set_backend(entry->backend.get());
      entry->capabilities = entry->service->capabilities();
      continue;
    }
    Entry* victim = entry->never_fits ? nullptr : victim_for(*entry);
    if (loaded.error().kind != ErrorKind::kExhausted || victim == nullptr) {
      entry->never_fits = loaded.error().kind == ErrorKind::kExhausted;
      return unavailable("The model " + in_quotes(model) + " cannot be loaded: " + loaded.error().message, "model");
    }
    victim->is_leaving = true;
    changed_.wait(lock, [&] { return victim->n_users == 0 || is_stopping_; });
    victim->is_leaving = false;
    if (victim->n_users == 0) unload(*victim, lock);
  }
}

// Nobody uses it, and nobody will begin to while this has the lock or the backend is gone.
void Fleet::unload(Entry& entry, std::unique_lock<std::mutex>& lock) {
  if (entry.backend == nullptr) return;
  std::unique_ptr<Backend> gone = std::move(entry.backend);
  entry.service->drop_backend();
  add_stats(counters_of(gone->stats()), entry.past);
  lock.unlock();  // its engine's thread tells the service what ends
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
