// How long a vision tower takes for a picture, and its rows.
//   tower_bench TOWER [--grid ROWS COLUMNS] [--threads N] [--rounds N] [--rows FILE]
// TOWER is a folder or an mmproj file; the picture is of patches of values from -1 to 1 (of gemma 4's: 0 to 1), the
// same ones for the same grid. Prints the median of the rounds in seconds; --rows writes the rows as F32.
// bench/compare_tower.py calls it beside llama.cpp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/best_seconds.h"
#include "host/loading.h"
#include "model/vision/tower.h"

namespace ibid::bench {
namespace {

int run(int argc, char** argv) {
  CHECK(argc >= 2, "tower_bench TOWER [--grid ROWS COLUMNS] [--threads N] [--rounds N] [--rows FILE]");
  int32_t grid_rows = 32, grid_columns = 32;
  int threads = 0, rounds = 3;
  std::string rows_file;
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    CHECK(i + (flag == "--grid" ? 2 : 1) < argc, "a flag without its value");
    if (flag == "--grid") {
      grid_rows = std::atoi(argv[i + 1]), grid_columns = std::atoi(argv[i + 2]);
      i += 2;
      continue;
    }
    const char* value = argv[++i];
    if (flag == "--threads") threads = std::atoi(value);
    if (flag == "--rounds") rounds = std::atoi(value);
    if (flag == "--rows") rows_file = value;
  }
  Result<ModelFile> file = ModelFile::open(argv[1]);
  CHECK(file.ok(), file ? "" : file.error().message.c_str());
  ThreadTeam team(threads > 0 ? threads : usable_cores());
  Stream stream(team);
  auto tower = Tower::load(std::make_shared<const ModelFile>(std::move(file).value()), "bench",
                           int64_t{grid_rows} * grid_columns, stream);
  CHECK(tower.ok(), tower ? "" : tower.error().message.c_str());
  const TowerConfig& c = (*tower)->config();
  std::vector<float> patches(static_cast<size_t>(int64_t{grid_rows} * grid_columns * c.patch_len()));
  uint64_t state = 1;
  for (float& x : patches) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float unit = static_cast<float>(state >> 40) / 16777216.0f;
    x = c.kind == TowerKind::kGemma4 ? unit : 2 * unit - 1;
  }
  std::vector<double> times;
  std::vector<float> rows;
  for (int i = 0; i < rounds; ++i) {
    times.push_back(seconds([&] {
      auto picture = (*tower)->begin({.grid_rows = grid_rows, .grid_columns = grid_columns, .patches = patches});
      CHECK(picture.ok(), picture ? "" : picture.error().message.c_str());
      while (!(*picture)->step(stream, TowerPace::kAlone)) {
      }
      rows = (*picture)->take();
    }));
  }
  std::ranges::sort(times);
  std::printf("%.4f\n", times[times.size() / 2]);
  if (!rows_file.empty())
    std::ofstream(rows_file, std::ios::binary)
        .write(reinterpret_cast<const char*>(rows.data()), static_cast<std::streamsize>(rows.size() * sizeof(float)));
  return 0;
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) { return ibid::bench::run(argc, argv); }
