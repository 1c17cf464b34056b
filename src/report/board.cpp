#include "report/board.h"

#include <algorithm>

namespace fem {
namespace {

SeedValues values_of(const SweepRow& row, const std::string& measure, double scale) {
  SeedValues values;
  for (const Json* line : row.runs)
    if (const Json value = line->at("measures").value(measure, Json()); value.is_number())
      values[line->at("seed")] = scale * value.get<double>();
  return values;
}

// Of one row, over its columns.
SeedValues average_of(const std::vector<BoardCell>& cells) {
  SeedValues average;
  for (const auto& [seed, first] : cells[0].values) {
    double sum = 0;
    const bool in_all = std::all_of(cells.begin(), cells.end(), [&, s = seed](const BoardCell& cell) {
      const auto found = cell.values.find(s);
      if (found != cell.values.end()) sum += found->second;
      return found != cell.values.end();
    });
    if (in_all) average[seed] = sum / static_cast<double>(cells.size());
  }
  return average;
}

// A row or a column by the label of its axis, and what it is called: a row has the labels of all other axes, too.
struct Line {
  std::string key, label;
  bool operator==(const Line&) const = default;
};

std::string label_on(const Study& study, const SweepRow& row, const std::string& axis) {
  for (size_t i = 0; i < study.axes.size(); ++i)
    if (study.axes[i] == axis) return row.labels[i];
  return "";
}

Line line_of(const Study& study, const SweepRow& row, const std::string& row_axis, const std::string& column_axis) {
  Line line{.key = label_on(study, row, row_axis)};
  for (size_t i = 0; i < study.axes.size(); ++i)
    if (study.axes[i] != column_axis) line.label += (line.label.empty() ? "" : ", ") + row.labels[i];
  if (line.label.empty()) line.label = "all runs";
  return line;
}

// Those of the claim that were run, then the others as they come.
template <typename Known>
std::vector<Line> ordered(const std::vector<Line>& run, const std::vector<Known>& known) {
  std::vector<Line> lines;
  const auto add = [&](const Line& line) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  };
  for (const Known& one : known)
    for (const Line& line : run)
      if (line.key == one.label) add(line);
  for (const Line& line : run) add(line);
  return lines;
}

template <typename Known>
const Known* find_label(const std::vector<Known>& known, const std::string& label) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) { return one.label == label; });
  return found == known.end() ? nullptr : &*found;
}

// The paper's figure of a row in a column of the claim, `average` for that of all its columns.
Published published_in(const Claim& claim, const ClaimRow& row, const std::string& column, bool average) {
  if (row.published.empty()) return {};
  if (claim.columns.size() < 2 || average) return row.published.back();
  const ClaimColumn* found = find_label(claim.columns, column);
  return found ? row.published[static_cast<size_t>(found - claim.columns.data())] : Published{};
}

}  // namespace

const BoardRow* Board::row(const std::string& label) const { return find_label(rows, label); }

Board board_of(const Study& study, const Claim* claim) {
  const Claim none;
  const Claim& known = claim ? *claim : none;
  Board board{.column_axis = claim                   ? claim->column_axis
                             : study.axes.size() > 1 ? study.axes.back()
                                                     : "",
              .measure = claim ? claim->measure : study.measure,  // a test's, say, where a validation chose
              .unit = known.unit,
              .scale = known.scale,
              .digits = static_cast<int>(known.digits),
              .larger_is_better = study.larger_is_better,
              .timed = study.timed,
              .places = known.places,
              .ladders = known.ladders};
  for (const std::string& axis : study.axes)
    if (axis != board.column_axis) board.row_axis += (board.row_axis.empty() ? "" : ", ") + axis;
  const std::string row_axis = claim ? claim->row_axis : study.axes.empty() ? "" : study.axes.front();
  std::vector<Line> rows, columns_run;
  std::map<std::pair<std::string, std::string>, const SweepRow*> places;
  for (const SweepRow& row : study.rows) {
    const std::string column = label_on(study, row, board.column_axis);
    rows.push_back(line_of(study, row, row_axis, board.column_axis));
    columns_run.push_back({column, column});
    places[{rows.back().label, column}] = &row;
  }
  for (const Line& column : ordered(columns_run, known.columns)) {
    const ClaimColumn* found = find_label(known.columns, column.key);
    board.columns.push_back({column.label, found ? found->title : column.label});
  }
  const size_t columns = board.columns.size();
  board.has_average = columns > 1 && !study.timed;
  if (board.has_average) board.columns.push_back({"average", "Average"});
  // Of some of the claim's columns the published average is another one.
  const bool whole = columns > 1 && std::all_of(known.columns.begin(), known.columns.end(), [&](const auto& column) {
                       return find_label(board.columns, column.label) != nullptr;
                     });
  for (const Line& line : ordered(rows, known.rows)) {
    const ClaimRow* found = find_label(known.rows, line.key);
    BoardRow row{.label = line.label, .title = found ? found->title : ""};
    for (size_t i = 0; i < columns; ++i) {
      BoardCell cell;
      if (const auto place = places.find({line.label, board.columns[i].label}); place != places.end()) {
        cell.row = place->second;
        cell.values = values_of(*cell.row, board.measure, board.scale);
      }
      if (found) cell.published = published_in(known, *found, board.columns[i].label, false);
      row.cells.push_back(std::move(cell));
    }
    if (board.has_average) {
      BoardCell cell{.values = average_of(row.cells)};
      if (found && whole) cell.published = published_in(known, *found, "", true);
      row.cells.push_back(std::move(cell));
    }
    board.rows.push_back(std::move(row));
  }
  return board;
}

}  // namespace fem
