#include "model/merged_adapters.h"

#include <cmath>
#include <utility>

#include "base/quoted.h"
#include "model/adapter_file.h"
#include "model/model.h"

namespace ibid {

Result<MergedAdapters> MergedAdapters::read(std::span<const AdapterToMerge> adapters,
                                            std::shared_ptr<const ModelFile> base, Stream& s) {
  if (base->container() != Container::kGguf) {
    return unsupported(base->path() +
                       " is a folder; adapters are merged into GGUF files, and `ibid convert` makes one");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                   load_model(base, {.step_tokens = 1, .max_rows = 1, .sized_only = true}, s));
  const std::span<const AdapterSeat> seats = model->adapter_seats();
  MergedAdapters out;
  for (const AdapterToMerge& adapter : adapters) {
    if (!std::isfinite(adapter.scale)) return invalid("the scale of " + adapter.path + " is not a number");
    ASSIGN_OR_RETURN(std::vector<Adapter::Pair> pairs, read_adapter_pairs(adapter.path, *base, *model));
    for (Adapter::Pair& pair : pairs) {
      const AdapterSeat& seat = seats[static_cast<size_t>(pair.seat)];
      const std::string tensor = seat.name + ".weight";
      const TensorInfo* info = base->find(tensor);
      const int64_t n_rows = seat.n_outputs * std::max<int64_t>(1, seat.n_experts);
      const int64_t rows_of_tensor = seat.n_rows > 0 ? seat.n_rows : n_rows;
      if (info == nullptr || info->view.n_rows() != rows_of_tensor || info->view.row_len() != seat.n_inputs) {
        return unsupported(adapter.path + " changes " + in_quotes(seat.name) + ", which is no matrix of its own in " +
                               base->path() + "; it can be served beside the file (--lora), not merged into it",
                           seat.name);
      }
      out.terms_[tensor].push_back({.first_row = seat.n_rows > 0 ? seat.first_row : 0,
                                    .n_rows = n_rows,
                                    .n_outputs = seat.n_outputs,
                                    .rank = pair.rank,
                                    .a = std::move(pair.a),
                                    .b = std::move(pair.b),
                                    .factor = pair.factor * adapter.scale});
    }
  }
  return out;
}

void MergedAdapters::add(std::string_view tensor, int64_t row, std::span<float> values) const {
  const auto found = terms_.find(tensor);
  if (found == terms_.end()) return;
  const size_t K = values.size();
  std::vector<double> sum(K);
  for (const Term& term : found->second) {
    const int64_t at = row - term.first_row;
    if (at < 0 || at >= term.n_rows) continue;
    const auto r = static_cast<size_t>(term.rank);
    const float* b = term.b.data() + static_cast<size_t>(at) * r;
    const float* a = term.a.data() + static_cast<size_t>(at / term.n_outputs) * r * K;
    std::ranges::fill(sum, 0.0);
    for (size_t i = 0; i < r; ++i, a += K) {
      for (size_t k = 0; k < K; ++k) sum[k] += static_cast<double>(b[i]) * static_cast<double>(a[k]);
    }
    for (size_t k = 0; k < K; ++k)
      values[k] = static_cast<float>(static_cast<double>(values[k]) + term.factor * sum[k]);
  }
}

}  // namespace ibid
