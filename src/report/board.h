// Results laid out as the paper's table: a row a mixer, a column a task, and their average.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/claim.h"
#include "report/statistics.h"
#include "report/study.h"

namespace fem {

using SeedValues = std::map<int64_t, double>;  // a run's figure, in the claim's unit, by its seed

struct BoardCell {
  SeedValues values;
  const SweepRow* row = nullptr;  // none: not run, or an average
  Published published;
};

struct BoardRow {
  std::string label, title;  // title: the paper's name, empty if it has none
  std::vector<BoardCell> cells;
};

struct Board {
  std::string row_axis, column_axis, measure, unit;
  double scale = 1;
  int digits = 4;
  bool larger_is_better = false, timed = false, places = false;
  bool has_average = false;  // as the last column
  std::vector<ClaimColumn> columns;
  std::vector<BoardRow> rows;
  std::vector<Ladder> ladders;

  const BoardRow* row(const std::string& label) const;
};

// In the claim's order, which comes first; what it does not name comes after. Without a claim the last of several axes
// makes the columns. Averages are of the seeds that all columns have.
Board board_of(const Study& study, const Claim* claim);

// What stands for several runs: their mean, or their median where they are rounds of a measurement.
double middle_of(const Board& board, const SeedValues& values);

// b - a, seed by seed.
Interval difference(const SeedValues& a, const SeedValues& b);

// What one step of a ladder changes in one column.
struct Effect {
  std::string ladder, step, from, to;
  size_t column = 0;
  Interval interval;
  std::optional<double> published;
};
std::vector<Effect> effects_of(const Board& board);

// Two rows that the paper orders and that stand the other way round here.
struct Reversal {
  std::string better, worse;        // in the paper
  std::optional<double> published;  // by how much
  Interval here;                    // better - worse
  bool certain = false;             // the interval leaves out 0
};

// How far the order of the paper is that of one column.
struct Agreement {
  size_t column = 0, rows = 0;
  double least = 0, most = 0;  // of these rows, here
  std::optional<double> spearman, kendall;
  size_t pairs = 0, same = 0;      // that the paper orders, and of these those ordered alike
  std::vector<Reversal> reversed;  // the certain ones first, the largest of each first

  size_t certain() const;  // how many
};
std::vector<Agreement> agreements_of(const Board& board);
std::string sentence_of(const Board& board, const Agreement& agreement);

}  // namespace fem
