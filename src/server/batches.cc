#include "server/batches.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <list>
#include <unordered_set>

#include "base/json_writer.h"
#include "base/quoted.h"
#include "base/thread_name.h"
#include "server/batch_lines.h"
#include "server/service.h"

namespace ibid {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBatchPrefix = "batch_";
constexpr std::chrono::milliseconds kTurn(100);  // heals a lost wake-up
constexpr int kIdleTurns = 10;                   // of a batch whose next line is refused for now, before another's are

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
  ASSIGN_OR_RETURN(std::unique_ptr<FileStore> files, FileStore::open(folder + "/files", max_bytes));
  std::error_code wrong;
  fs::create_directories(folder + "/batches", wrong);
  if (wrong) return invalid("The folder " + in_quotes(folder) + " cannot be used: " + wrong.message() + ".");
  Result<FileLock> lock = FileLock::acquire(folder + "/lock", [] { return false; });
  if (!lock)
    return unavailable("The folder " + in_quotes(folder) + " is another server's; --files-dir names one of its own.");
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
}

void Batches::start(Service& service) {
  service_ = &service;
  is_stopping_ = false;
  thread_ = std::thread([this] {
    name_thread("ibid-batch");
    run();
  });
}

void Batches::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

template <typename Change>
Batch Batches::change(const std::string& id, Change change) {
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
    b.cancelling = unix_seconds();
    changed_.notify_all();
  });
}

// The oldest that is not over and has waited the least often, again and again.
void Batches::run() {
  while (true) {
    std::string next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        const Batch* oldest = nullptr;
        for (const auto& [id, batch] : batches_) {
          if (batch.is_over()) continue;
          if (oldest == nullptr || std::pair(batch.turn, batch.created) < std::pair(oldest->turn, oldest->created))
            oldest = &batch;
        }
        if (oldest != nullptr) next = oldest->id;
        return oldest != nullptr || is_stopping_;
      });
      if (is_stopping_) return;
    }
    try {
      work_on(next);
    } catch (const std::exception&) {  // no memory: once more, later
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
}

struct Batches::Work {
  struct Asked {
    int64_t number = 0;
    std::string custom_id;
    WebExchange exchange;
  };
  std::string id;
  Batch batch;
  std::ifstream input;
  std::vector<bool> is_done;  // of lines, as the files said at the start
  std::unique_ptr<LineFile> answers, errors;
  std::list<Asked> asked;
  std::unordered_set<std::string> names;  // custom_ids so far
  int64_t n_read = 0;
  std::string text;  // of the line that is to be asked, where it was refused for want of room
  bool has_text = false, is_end = false;
  int64_t n_completed = 0, n_failed = 0;
};

void Batches::fail(const std::string& id, const std::string& why) {
  change(id, [&](Batch& b) {
    b.status = "failed";
    b.error = why;
    b.ended = unix_seconds();
  });
}

void Batches::work_on(const std::string& id) {
  Work work;
  work.id = id;
  {
    const std::lock_guard lock(mutex_);
    work.batch = batches_.find(id)->second;
  }
  if (work.batch.status == "finalizing") return finalize(id);
  if (!service_->has_tenant(work.batch.tenant)) return fail(id, "The key of the batch's tenant is gone.");
  const std::optional<StoredFile> file = files_->find(work.batch.input_file, work.batch.tenant);
  if (file) work.input.open(files_->path_of(file->id), std::ios::binary);
  if (!file || !work.input) return fail(id, "The input file is gone.");
  int64_t n_lines = 0;
  int64_t n_total = 0;
  for (std::string line; std::getline(work.input, line); ++n_lines) n_total += !is_blank_line(line);
  if (n_total == 0) return fail(id, "The input file has no lines.");
  work.input.clear();
  work.input.seekg(0);
  work.is_done.resize(static_cast<size_t>(n_lines));
  const auto done = [&](int64_t& count) {
    return [&work, &count](int64_t number) {
      if (number < std::ssize(work.is_done)) work.is_done[static_cast<size_t>(number)] = true;
      ++count;
    };
  };
  work.answers = std::make_unique<LineFile>(path_of(id) + ".out", done(work.n_completed));
  work.errors = std::make_unique<LineFile>(path_of(id) + ".err", done(work.n_failed));
  change(id, [&](Batch& b) {
    if (b.status == "validating") b.status = "in_progress";
    if (b.begun == 0) b.begun = unix_seconds();
    b.n_total = n_total;
  });
  answer_lines(work);
}

// Until all are answered, or the batch is to end, or the server.
void Batches::answer_lines(Work& work) {
  const auto count = [&] {
    const std::lock_guard lock(mutex_);
    Batch& batch = batches_.find(work.id)->second;
    batch.n_completed = work.n_completed;
    batch.n_failed = work.n_failed;
    return std::pair(is_stopping_ || service_->draining(), batch.status == "cancelling");
  };
  const auto write_error = [&](const std::string& line) { work.errors->add(line), ++work.n_failed; };
  // True: the line has been dealt with; false: the server is full, so later.
  const auto ask = [&](int64_t number, const BatchLine& line) {
    WebRequest request;
    request.method = "POST";
    request.target = work.batch.endpoint;
    request.headers = {{"content-type", "application/json"}};
    request.body = line.body;
    request.as_tenant = work.batch.tenant;
    request.arrived = service_->now();
    service_->choose_model_and_wait(request);
    WebExchange exchange = service_->handle(request, [this] {
      const std::lock_guard lock(mutex_);
      is_awake_ = true;
      changed_.notify_all();
    });
    if (exchange.generation) {
      work.asked.push_back({number, line.custom_id, std::move(exchange)});
      return true;
    }
    const int status = exchange.response.status;
    service_->finish(exchange, nullptr);
    if (status == 429 || (status == 503 && service_->draining())) return false;
    const std::string answer =
        batch_answer_line(number, line.custom_id, exchange.request_id, status, exchange.response.body);
    status == 200 ? static_cast<void>((work.answers->add(answer), ++work.n_completed)) : write_error(answer);
    return true;
  };
  // Its tenant has had what its terms give, say: others need not wait for that.
  const auto let_another_go_on = [&] {
    const std::lock_guard lock(mutex_);
    Batch& batch = batches_.find(work.id)->second;
    const bool has_others = std::ranges::any_of(
        batches_, [&](const auto& entry) { return entry.first != work.id && !entry.second.is_over(); });
    if (has_others) ++batch.turn;
    return has_others;
  };
  const auto ask_more = [&] {
    while (!work.is_end && work.asked.size() < kAtOnce) {
      if (!std::exchange(work.has_text, false) && !std::getline(work.input, work.text)) {
        work.is_end = true;
        return;
      }
      if (is_blank_line(work.text)) {
        ++work.n_read;
        continue;
      }
      const int64_t number = work.n_read;
      const bool is_done = work.is_done[static_cast<size_t>(number)];
      std::string custom_id;
      Result<BatchLine> line = read_batch_line(work.text, work.batch.endpoint, max_line_, custom_id);
      if (line && work.names.contains(line->custom_id))
        line = invalid("custom_id " + in_quotes(line->custom_id) + " is another line's too.");
      if (!is_done && line && !ask(number, *line)) {
        work.has_text = true;
        return;
      }
      if (!is_done && !line) write_error(batch_error_line(number, custom_id, line.error()));
      if (line) work.names.insert(line->custom_id);
      ++work.n_read;
    }
  };
  int n_idle = 0;
  while (true) {
    const auto [stops, is_cancelled] = count();
    if (stops || !work.answers->is_sound() || !work.errors->is_sound()) break;
    if (is_cancelled) work.is_end = true;
    ask_more();
    if (work.asked.empty() && work.is_end) break;
    n_idle = work.asked.empty() ? n_idle + 1 : 0;
    if (n_idle > kIdleTurns && let_another_go_on()) return;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kTurn, [this] { return is_awake_ || is_stopping_; });
      is_awake_ = false;
    }
    for (auto asked = work.asked.begin(); asked != work.asked.end();) {
      WebExchange& exchange = asked->exchange;
      service_->collect(exchange);
      if (!exchange.generation->finished()) {
        ++asked;
        continue;
      }
      WebResponse response = exchange.generation->response();
      while (response.status == 200 && !exchange.generation->done()) exchange.generation->write_part(response.body);
      exchange.response.status = response.status;
      const bool is_ours = response.status == 503 && service_->draining();  // it was cut off by the server's end
      service_->finish(exchange, nullptr);
      const std::string line =
          batch_answer_line(asked->number, asked->custom_id, exchange.request_id, response.status, response.body);
      if (!is_ours) {
        response.status == 200 ? static_cast<void>((work.answers->add(line), ++work.n_completed)) : write_error(line);
      }
      asked = work.asked.erase(asked);
    }
  }
  for (Work::Asked& asked : work.asked) {
    const Abort cause = Abort::kShutdown;
    service_->finish(asked.exchange, &cause);
  }
  const auto [stops, is_cancelled] = count();
  if (!work.answers->is_sound() || !work.errors->is_sound())
    return fail(work.id, "The server's disk for files is full or broken.");
  if (stops && !(work.is_end && work.asked.empty())) return;
  change(work.id, [](Batch& b) {
    if (b.n_completed > 0) b.output_file = random_id("file-");
    if (b.n_failed > 0) b.error_file = random_id("file-");
    b.status = "finalizing";
    b.finalizing = unix_seconds();
  });
  finalize(work.id);
}

// Its lines become files. Again after a process that died in it.
void Batches::finalize(const std::string& id) {
  const Batch batch = change(id, [](Batch&) {});
  Status kept;
  if (!batch.output_file.empty())
    kept = files_->adopt(batch.output_file, batch.tenant, id + "_output.jsonl", path_of(id) + ".out");
  if (kept && !batch.error_file.empty())
    kept = files_->adopt(batch.error_file, batch.tenant, id + "_error.jsonl", path_of(id) + ".err");
  if (!kept) return fail(id, kept.error().message);
  ::unlink((path_of(id) + ".out").c_str());
  ::unlink((path_of(id) + ".err").c_str());
  change(id, [](Batch& b) {
    b.status = b.cancelling > 0 ? "cancelled" : "completed";
    b.ended = unix_seconds();
  });
}

}  // namespace ibid
