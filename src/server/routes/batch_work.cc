// The work on batches: which of them are open, and their lines from the input to the answer on the disk.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <list>
#include <map>
#include <tuple>
#include <unordered_set>

#include "base/quoted.h"
#include "server/routes/batch_lines.h"
#include "server/routes/batches.h"
#include "server/routes/front_door.h"

namespace ibid {

namespace {

constexpr std::chrono::milliseconds kTurn(100);  // heals a lost wake-up
constexpr int kIdleTurns = 10;                   // of a batch whose next line is refused for now, before another's are

}  // namespace

// The next line's request, while its model is loaded. Shared with the loader's thread, which has it until is_done.
struct Batches::Loading {
  WebRequest request;
  std::atomic<bool> is_done = false;
};

struct Batches::Work {
  struct Asked {
    int64_t number = 0;
    std::string custom_id;
    WebExchange exchange;
  };
  std::string id;
  Batch batch;  // as it was when it was opened
  std::ifstream input;
  std::vector<bool> is_done;  // of lines, by the files at the start
  std::unique_ptr<LineFile> answers, errors;
  std::list<Asked> asked;
  std::unordered_set<std::string> names;  // custom_ids so far
  int64_t n_total = 0;                    // lines that are not blank, as the input had them at the start
  int64_t n_seen = 0;                     // of these
  int64_t n_read = 0;                     // all lines
  std::string text;                       // of the line that is to be asked, where that could not be done yet
  std::shared_ptr<Loading> loading;       // for that line
  bool has_text = false, is_end = false;
  bool is_leaving = false;  // it begins no line before another tenant's batch has had its turn
  bool is_over = false;
  std::string broken;  // why it fails; empty: it does not
  int n_idle = 0, n_begun = 0;
  int64_t n_completed = 0, n_failed = 0;

  void write(const std::string& line, bool is_answer) {
    (is_answer ? answers : errors)->add(line);
    ++(is_answer ? n_completed : n_failed);
    if (!answers->is_sound() || !errors->is_sound()) broken = "The server's disk for files is full or broken.";
  }
};

bool Batches::goes_on() const {
  const std::lock_guard lock(mutex_);
  return !is_stopping_ && !front_->draining();
}

void Batches::look_again() {
  const std::lock_guard lock(mutex_);
  has_changes_ = true;
}

// Until there is news; where something may go on without any, not for long.
void Batches::rest(bool is_idle) {
  std::unique_lock lock(mutex_);
  const auto has_news = [this] { return is_awake_ || is_stopping_; };
  is_idle ? changed_.wait(lock, has_news) : static_cast<void>(changed_.wait_for(lock, kTurn, has_news));
  is_awake_ = false;
}

void Batches::run() {
  Works works;
  while (goes_on()) {
    bool has_moved = false, is_short = false;  // of memory
    try {
      has_moved = open_more(works);
    } catch (const std::exception&) {  // once more, later
      is_short = true;
      look_again();
    }
    const size_t share = std::max<size_t>(1, kAtOnce / std::max<size_t>(1, works.size()));
    for (const std::unique_ptr<Work>& work : works) {
      if (!goes_on()) break;
      try {
        has_moved |= turn(*work, share, has_unopened_);
      } catch (const std::exception&) {  // it is opened again, and goes on where its files end
        abandon(*work);
        work->is_over = is_short = true;
      }
    }
    if (std::erase_if(works, [](const auto& work) { return work->is_over; }) > 0) look_again();
    if (!has_moved || is_short) rest(works.empty() && !is_short);
  }
  for (const std::unique_ptr<Work>& work : works) abandon(*work);
  works.clear();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_stopping_; });
}

// Of each tenant that has none open its first: the oldest of those that have had the fewest turns. True: there was one.
bool Batches::open_more(Works& works) {
  std::vector<std::pair<std::string, bool>> ended;  // not open; whether its lines are files already
  std::map<std::string, const Batch*> first;
  std::vector<std::string> next;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_changes_, false)) return false;  // of those that are over any number is kept
    const auto order = [](const Batch& b) { return std::tie(b.turn, b.created, b.id); };
    const auto is_open = [&](auto holds) {
      return std::ranges::any_of(works, [&](const auto& w) { return holds(*w); });
    };
    for (const auto& [id, batch] : batches_) {
      if (batch.is_over() || is_open([&](const Work& w) { return w.id == id; })) continue;
      if (batch.status == "cancelling" || batch.status == "finalizing") {
        ended.emplace_back(id, batch.status == "finalizing");
        continue;
      }
      if (is_open([&](const Work& w) { return w.batch.tenant == batch.tenant; })) continue;
      const Batch*& of_tenant = first[batch.tenant];
      if (of_tenant == nullptr || order(batch) < order(*of_tenant)) of_tenant = &batch;
    }
    std::vector<const Batch*> in_order;
    for (const auto& [tenant, batch] : first) in_order.push_back(batch);
    std::ranges::sort(in_order, [&](const Batch* a, const Batch* b) { return order(*a) < order(*b); });
    for (const Batch* batch : in_order) {
      if (works.size() + next.size() < kMaxOpen) next.push_back(batch->id);
    }
    has_unopened_ = next.size() < in_order.size();
  }
  for (const auto& [id, is_finalizing] : ended) is_finalizing ? finalize(id) : conclude(id, "");
  for (const std::string& id : next) {
    std::unique_ptr<Work> work = open_work(id);
    work != nullptr ? works.push_back(std::move(work)) : look_again();  // for the tenant's next
  }
  return !next.empty() || !ended.empty();
}

// Null: it has failed.
std::unique_ptr<Batches::Work> Batches::open_work(const std::string& id) {
  auto work = std::make_unique<Work>();
  work->id = id;
  {
    const std::lock_guard lock(mutex_);
    work->batch = batches_.find(id)->second;
  }
  const auto fail = [&](const char* why) {
    conclude(id, why);
    return nullptr;
  };
  if (!front_->has_tenant(work->batch.tenant)) return fail("The key of the batch's tenant is gone.");
  const std::optional<StoredFile> file = files_->find(work->batch.input_file, work->batch.tenant);
  if (file) work->input.open(files_->path_of(file->id), std::ios::binary);
  if (!file || !work->input) return fail("The input file is gone.");
  int64_t n_lines = 0;
  for (std::string line; std::getline(work->input, line); ++n_lines) work->n_total += !is_blank_line(line);
  if (work->n_total == 0) return fail("The input file has no lines.");
  if (work->batch.n_total > 0 && work->n_total != work->batch.n_total) return fail("The input file has changed.");
  work->input.clear();
  work->input.seekg(0);
  work->is_done.resize(static_cast<size_t>(n_lines));
  const auto done = [&](int64_t& count) {
    return [&work, &count](int64_t number) {
      if (number < std::ssize(work->is_done)) work->is_done[static_cast<size_t>(number)] = true;
      ++count;
    };
  };
  work->answers = std::make_unique<LineFile>(path_of(id) + ".out", done(work->n_completed));
  work->errors = std::make_unique<LineFile>(path_of(id) + ".err", done(work->n_failed));
  if (!work->answers->is_sound() || !work->errors->is_sound())
    return fail("The server's disk for files is full or broken.");
  change(id, [&](Batch& b) {
    if (b.status == "validating") b.status = "in_progress";
    if (b.begun == 0) b.begun = unix_seconds();
    b.n_total = work->n_total;
  });
  return work;
}

// Reports the progress. True: it is cancelled.
bool Batches::count(const Work& work) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_.find(work.id)->second;
  batch.n_completed = work.n_completed;
  batch.n_failed = work.n_failed;
  return batch.status == "cancelling";
}

// What has been answered is written down, and at most one line is asked, of at most `share` under way. True: there was
// something to do.
bool Batches::turn(Work& work, size_t share, bool is_waited_for) {
  bool has_moved = collect(work);
  if (count(work)) {
    work.is_end = true;
    work.loading.reset();
  }
  if (work.broken.empty() && !work.is_end && !work.is_leaving && work.asked.size() < share) {
    const bool has_asked = ask_next(work);
    work.n_idle = has_asked || !work.asked.empty() || work.loading ? 0 : work.n_idle + 1;
    has_moved |= has_asked;
    count(work);
  }
  if (is_waited_for && (work.n_idle > kIdleTurns || work.n_begun >= kLinesOfTurn)) work.is_leaving = true;
  if (!work.broken.empty()) abandon(work);
  if (!work.asked.empty() || (!work.is_end && !work.is_leaving && work.broken.empty())) return has_moved;
  work.is_over = true;
  if (work.is_end || !work.broken.empty()) {
    conclude(work.id, work.broken);
  } else {
    const std::lock_guard lock(mutex_);
    ++batches_.find(work.id)->second.turn;
  }
  return true;
}

// The next line is read, and asked where it has no answer yet. False: not now.
bool Batches::ask_next(Work& work) {
  if (work.loading && !work.loading->is_done) return false;
  if (!std::exchange(work.has_text, false)) {
    const bool is_line = static_cast<bool>(std::getline(work.input, work.text));
    if (!is_line) work.is_end = true;
    if (!is_line && work.n_seen == work.n_total) return true;
    if (!is_line || work.n_read >= std::ssize(work.is_done)) {
      work.broken = "The input file has changed.";
      return true;
    }
    work.n_seen += !is_blank_line(work.text);
  }
  const int64_t number = work.n_read;
  if (!is_blank_line(work.text)) {
    const bool is_done = work.is_done[static_cast<size_t>(number)];
    std::string custom_id;
    Result<BatchLine> line = read_batch_line(work.text, work.batch.endpoint, max_line_, custom_id);
    if (line && work.names.contains(line->custom_id))
      line = invalid("custom_id " + in_quotes(line->custom_id) + " is another line's too.");
    if (!is_done && line && !ask(work, number, line->custom_id, line->body)) {
      work.has_text = true;
      return false;
    }
    if (!is_done && !line) work.write(batch_error_line(number, custom_id, line.error()), false);
    if (!is_done) ++work.n_begun;
    if (line) work.names.insert(line->custom_id);
  }
  ++work.n_read;
  return true;
}

// True: the line has been dealt with. False: the server is full, or loads its model, so later.
bool Batches::ask(Work& work, int64_t number, const std::string& custom_id, const std::string& body) {
  WebRequest request;
  if (const std::shared_ptr<Loading> loaded = std::exchange(work.loading, nullptr)) {
    request = std::move(loaded->request);
  } else {
    request.method = "POST";
    request.target = work.batch.endpoint;
    request.headers = {{"content-type", "application/json"}};
    request.body = body;
    request.as_tenant = work.batch.tenant;
    request.arrived = front_->now();
    if (!front_->choose_model(request)) {
      // Waiting here would collect no answers, and the model that is to make room waits for those.
      work.loading = std::make_shared<Loading>();
      work.loading->request = std::move(request);
      front_->post_to_loader(work.loading->request.model_name, work.loading->request.tenant,
                             [this, loading = work.loading] {
                               try {
                                 front_->wait_for_model(loading->request);
                               } catch (const std::exception&) {  // no memory: then there is no model
                               }
                               loading->is_done = true;
                               wake();
                             });
      return false;
    }
  }
  Work::Asked asked = {number, custom_id, front_->handle(request, [this] { wake(); })};
  WebExchange& exchange = asked.exchange;
  if (exchange.generation) {
    work.asked.push_back(std::move(asked));
    return true;
  }
  const int status = exchange.response.status;
  front_->finish(exchange, nullptr);
  if (status == 429 || (status == 503 && front_->draining())) return false;
  work.write(batch_answer_line(number, custom_id, exchange.request_id, status, exchange.response.body), status == 200);
  return true;
}

// Writes down what has ended. True: something had.
bool Batches::collect(Work& work) {
  bool has_ended = false;
  for (auto asked = work.asked.begin(); asked != work.asked.end();) {
    WebExchange& exchange = asked->exchange;
    front_->collect(exchange);
    if (!exchange.generation->finished()) {
      ++asked;
      continue;
    }
    has_ended = true;
    WebResponse response = exchange.generation->response();
    while (response.status == 200 && !exchange.generation->done()) exchange.generation->write_part(response.body);
    exchange.response.status = response.status;
    const bool is_ours = response.status == 503 && front_->draining();  // it was cut off by the server's end
    const std::string line =
        batch_answer_line(asked->number, asked->custom_id, exchange.request_id, response.status, response.body);
    front_->finish(exchange, nullptr);
    asked = work.asked.erase(asked);
    if (!is_ours) work.write(line, response.status == 200);
  }
  return has_ended;
}

// Lines that are under way are as if never begun.
void Batches::abandon(Work& work) {
  for (Work::Asked& asked : work.asked) {
    const Abort cause = Abort::kShutdown;
    front_->finish(asked.exchange, &cause);
  }
  work.asked.clear();
}

}  // namespace ibid
