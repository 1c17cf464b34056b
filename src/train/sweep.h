// A grid of runs: resumable, several processes at a time.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/jsonl.h"
#include "train/grid.h"
#include "train/summary.h"

namespace fem {

struct SweepOptions {
  std::filesystem::path out;
  int64_t jobs = 2;                  // runs at a time, of one thread each
  std::vector<std::string> program;  // what `train RECIPE ...` is given to
};

// Whether a line says all that is read of it: of a run that failed, or of one that finished.
bool is_sweep_result(const Json& line);

// What out/results.jsonl says: a line for every run that ended, the last of a run counting.
class SweepResults {
 public:
  explicit SweepResults(const std::filesystem::path& file);

  // The line of this very run; nothing if it has not ended or its recipe was another.
  const Json* line_of(const GridRun& run) const;
  // The same of one that finished.
  const Json* finished(const GridRun& run) const;

  void add_finished(const Grid& grid, const GridRun& run, const Json& result);
  void add_failed(const Grid& grid, const GridRun& run, const std::string& error);

  // Those that count, in the order of the file.
  const std::vector<Json>& lines() const { return lines_; }

 private:
  void add(const Grid& grid, const GridRun& run, const Json& more);
  void keep(Json line);

  std::filesystem::path file_;
  std::vector<Json> lines_;
  std::map<std::string, size_t> place_of_;  // of a run's name
};

// The runs of one cell that have ended; those to choose by may be another's.
struct CellRuns {
  std::vector<std::string> labels;
  std::vector<std::string> choices;
  std::vector<int64_t> choosing_seeds, seeds;
  std::map<std::pair<size_t, int64_t>, const Json*> lines;  // of a choice and a seed
};
CellRuns runs_of(const Grid& grid, const SweepResults& results, size_t cell);

// The choice of a cell by its choosing seeds; nothing if a run of them is still to come or none of the choices has all.
std::optional<size_t> chosen(const CellRuns& runs);
std::optional<size_t> chosen(const Grid& grid, const SweepResults& results, size_t cell);

// A row of the table: the reported seeds of a cell at what was chosen for it.
struct SweepRow {
  std::vector<std::string> labels;
  std::string choice;
  int64_t parameters = 0;
  std::vector<std::pair<std::string, Summary>> measures;  // of the seeds that finished
  size_t failed = 0;                                      // runs, also those to choose by
  std::vector<const Json*> runs;                          // the lines that were summed up; they are the results'
};
SweepRow sweep_row(const CellRuns& runs);
std::vector<SweepRow> sweep_rows(const Grid& grid, const SweepResults& results);
// Mean ± standard error over the reported seeds.
std::string sweep_table(const Grid& grid, const std::vector<SweepRow>& rows);

struct SweepOutcome {
  size_t runs = 0, finished = 0, failed = 0;
  bool interrupted = false;  // by a signal, after all runs in progress were saved
};

// Runs what results.jsonl does not have yet: first each cell's choices on the choosing seeds, then its best choice on
// the reported ones. A failed run is told, recorded and tried again by the next call. Progress goes to stderr.
SweepOutcome sweep(const Grid& grid, const SweepOptions& options, std::ostream& log);

std::filesystem::path sweep_results_path(const std::filesystem::path& out);

}  // namespace fem
