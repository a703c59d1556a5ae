#include "server/routes/batches.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/json_writer.h"
#include "base/quoted.h"
#include "base/thread_name.h"
#include "server/routes/batch_lines.h"

namespace ibid {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBatchPrefix = "batch_";

using TextField = std::pair<const char*, std::string Batch::*>;
constexpr std::array<TextField, 9> kBatchTexts = {{{"tenant", &Batch::tenant},
                                                   {"endpoint", &Batch::endpoint},
                                                   {"input_file", &Batch::input_file},
                                                   {"window", &Batch::window},
                                                   {"metadata", &Batch::metadata},
                                                   {"status", &Batch::status},
                                                   {"output_file", &Batch::output_file},
                                                   {"error_file", &Batch::error_file},
                                                   {"error", &Batch::error}}};
using NumberField = std::pair<const char*, int64_t Batch::*>;
constexpr std::array<NumberField, 8> kBatchNumbers = {{{"created", &Batch::created},
                                                       {"begun", &Batch::begun},
                                                       {"finalizing", &Batch::finalizing},
                                                       {"ended", &Batch::ended},
                                                       {"cancelling", &Batch::cancelling},
                                                       {"n_total", &Batch::n_total},
                                                       {"n_completed", &Batch::n_completed},
                                                       {"n_failed", &Batch::n_failed}}};

std::string facts_of(const Batch& batch) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  for (const auto& [name, field] : kBatchTexts) json.field(name, batch.*field);
  for (const auto& [name, field] : kBatchNumbers) json.field(name, batch.*field);
  json.end_object();
  return out;
}

std::optional<Batch> batch_of(const std::string& id, const Json& json) {
  Batch batch;
  batch.id = id;
  for (const auto& [name, field] : kBatchTexts) {
    const Json* value = json.find(name);
    if (value == nullptr || value->string() == nullptr) return std::nullopt;
    batch.*field = *value->string();
  }
  for (const auto& [name, field] : kBatchNumbers) {
    const Json* value = json.find(name);
    if (value == nullptr || value->integer() == nullptr) return std::nullopt;
    batch.*field = *value->integer();
  }
  return batch;
}

}  // namespace

Result<std::unique_ptr<Batches>> Batches::open(const std::string& folder, int64_t max_bytes, size_t max_line) {
  std::error_code wrong;
  fs::create_directories(folder, wrong);
  if (wrong) return invalid("The folder " + in_quotes(folder) + " cannot be used: " + wrong.message() + ".");
  Result<FileLock> lock = FileLock::acquire(folder + "/lock", [] { return false; });
  if (!lock)
    return unavailable("The folder " + in_quotes(folder) + " is another server's; --files-dir names one of its own.");
  fs::create_directories(folder + "/batches", wrong);
  if (wrong) return invalid("The folder " + in_quotes(folder) + " cannot be used: " + wrong.message() + ".");
  ASSIGN_OR_RETURN(std::unique_ptr<FileStore> files, FileStore::open(folder + "/files", max_bytes));
  std::unique_ptr<Batches> out(new Batches(folder + "/batches", max_line, *std::move(lock), std::move(files)));
  out->scan();
  return out;
}

Batches::Batches(std::string folder, size_t max_line, FileLock lock, std::unique_ptr<FileStore> files)
    : folder_(std::move(folder)), max_line_(max_line), lock_(std::move(lock)), files_(std::move(files)) {}

Batches::~Batches() { stop(); }

void Batches::scan() {
  std::error_code wrong;
  for (const auto& entry : fs::directory_iterator(folder_, wrong)) {
    const std::string id = entry.path().stem().string();
    if (entry.path().extension() != ".json" || !is_id(id, kBatchPrefix)) continue;
    const Result<std::string> text = read_whole(entry.path().string());
    const Result<Json> json = text ? parse_json(*text) : Result<Json>(text.error());
    if (!json) continue;
    if (std::optional<Batch> batch = batch_of(id, *json)) batches_[id] = *std::move(batch);
  }
  for (const auto& [id, batch] : batches_) {
    if (!batch.is_over()) continue;
    keep_lines(batch, batch.output_file, "output");  // where that could not be done before
    keep_lines(batch, batch.error_file, "error");
  }
}

void Batches::start(FrontDoor& front) {
  front_ = &front;
  is_stopping_ = false;
  has_changes_ = true;
  thread_ = std::thread([this] {
    name_thread("ibid-batch");
    give_way();
    run();
  });
}

void Batches::wake() {
  const std::lock_guard lock(mutex_);
  is_awake_ = true;
  changed_.notify_all();
}

void Batches::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Batch Batches::change(const std::string& id, const std::function<void(Batch&)>& change) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_.find(id)->second;
  change(batch);
  static_cast<void>(write_whole(path_of(id) + ".json", facts_of(batch)));  // else it is done again after a restart
  return batch;
}

Result<Batch> Batches::create(Batch batch) {
  const std::lock_guard lock(mutex_);
  const auto n = std::ranges::count_if(
      batches_, [&](const auto& entry) { return entry.second.tenant == batch.tenant && !entry.second.is_over(); });
  if (n >= kMaxUnfinished)
    return exhausted("There are " + std::to_string(n) + " batches that have not ended; try again when one has.");
  batch.id = random_id(kBatchPrefix);
  batch.created = unix_seconds();
  TRY(write_whole(path_of(batch.id) + ".json", facts_of(batch)));
  batches_[batch.id] = batch;
  is_awake_ = has_changes_ = true;
  changed_.notify_all();
  return batch;
}

std::optional<Batch> Batches::find(std::string_view id, std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  return owned(batches_, id, tenant);
}

std::vector<Batch> Batches::list(std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  return all_owned(batches_, tenant);
}

std::optional<Batch> Batches::cancel(std::string_view id, std::string_view tenant) {
  const std::optional<Batch> batch = find(id, tenant);
  if (!batch) return std::nullopt;
  return change(batch->id, [this](Batch& b) {
    if (b.is_over() || b.status == "finalizing") return;
    b.status = "cancelling";
    if (b.cancelling == 0) b.cancelling = unix_seconds();
    is_awake_ = has_changes_ = true;
    changed_.notify_all();
  });
}

void Batches::conclude(const std::string& id, const std::string& why) {
  int64_t n_completed = 0, n_failed = 0;  // as the disk has them
  const LineFile answers(path_of(id) + ".out", [&](int64_t) { ++n_completed; });
  const LineFile errors(path_of(id) + ".err", [&](int64_t) { ++n_failed; });
  change(id, [&](Batch& b) {
    b.n_completed = n_completed;
    b.n_failed = n_failed;
    if (n_completed > 0) b.output_file = random_id("file-");
    if (n_failed > 0) b.error_file = random_id("file-");
    b.error = why;
    b.status = "finalizing";
    b.finalizing = unix_seconds();
  });
  finalize(id);
}

// True: they are a file of that id, which is none where there are no lines.
bool Batches::keep_lines(const Batch& batch, const std::string& file, const char* name) {
  if (file.empty()) return true;
  const std::string path = path_of(batch.id) + (name == std::string_view("output") ? ".out" : ".err");
  const std::string filename = batch.id + "_" + name + ".jsonl";
  return files_->adopt(file, batch.tenant, filename, path).ok() ||
         files_->lend(file, batch.tenant, filename, path);  // e.g. a full disk
}

// Its lines become files. Again after a process that died in it.
void Batches::finalize(const std::string& id) {
  const Batch batch = change(id, [](Batch&) {});
  const bool has_output = keep_lines(batch, batch.output_file, "output");
  const bool has_errors = keep_lines(batch, batch.error_file, "error");
  const Batch ended = change(id, [&](Batch& b) {
    if (!has_output) b.output_file.clear();
    if (!has_errors) b.error_file.clear();
    if ((!has_output || !has_errors) && b.error.empty()) b.error = "Lines that were answered are gone from the disk.";
    b.status = !b.error.empty() ? "failed" : b.cancelling > 0 ? "cancelled" : "completed";
    b.ended = unix_seconds();
  });
  for (const auto& [file, end] : {std::pair(ended.output_file, ".out"), std::pair(ended.error_file, ".err")}) {
    const std::string path = path_of(id) + end;
    if (file.empty() || files_->path_of(file) != path) ::unlink(path.c_str());
  }
}

}  // namespace ibid
