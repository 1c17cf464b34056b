#include "report/document.h"

#include <torch/headeronly/version.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/paired.h"
#include "fem/version.h"
#include "util/shell.h"
#include "util/table.h"

namespace fem {
namespace {

constexpr size_t kMostPoints = 200;  // of a curve; more cannot be told apart in a picture

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// Five digits are more than a picture shows.
double rounded(double value) {
  if (std::abs(value) < 1e-30 || std::abs(value) > 1e30) return value;
  const double unit = std::pow(10, 4 - std::floor(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}

Summary summary_of(const SeedValues& values) {
  std::vector<double> all;
  for (const auto& [seed, value] : values) all.push_back(value);
  return summarize(all);
}

Json json_of(const Board& board, const BoardCell& cell) {
  const Summary summary = summary_of(cell.values);
  Json seeds = Json::object();
  for (const auto& [seed, value] : cell.values) seeds[std::to_string(seed)] = value;
  const bool any = summary.count > 0;
  const double middle = any ? middle_of(board, cell.values) : 0;
  return {{"text", !any          ? ""
                   : board.timed ? fixed(middle, board.digits)
                                 : summary.text(board.digits)},
          {"middle", any ? Json(middle) : Json()},
          {"standard_error", board.timed ? Json() : optional_json(summary.standard_error)},
          {"seeds", seeds},
          {"published", cell.published.text},
          {"published_value", board.places ? Json() : optional_json(cell.published.value)},
          {"failed", cell.row ? cell.row->failed : 0}};
}

Json json_of(const Board& board) {
  Json out{{"row_axis", board.row_axis},
           {"column_axis", board.column_axis},
           {"measure", board.measure},
           {"unit", board.unit},
           {"larger_is_better", board.larger_is_better},
           {"timed", board.timed},
           {"places", board.places},
           {"columns", Json::array()},
           {"rows", Json::array()}};
  for (const ClaimColumn& column : board.columns)
    out["columns"].push_back({{"label", column.label}, {"title", column.title}});
  for (const BoardRow& row : board.rows) {
    Json cells = Json::array();
    for (const BoardCell& cell : row.cells) cells.push_back(json_of(board, cell));
    out["rows"].push_back({{"label", row.label}, {"title", row.title}, {"cells", cells}});
  }
  return out;
}

Json json_of(const Board& board, const Effect& effect) {
  const auto& [mean, count, half_width] = effect.interval;
  return {{"ladder", effect.ladder},
          {"step", effect.step},
          {"from", effect.from},
          {"to", effect.to},
          {"column", board.columns[effect.column].title},
          {"is_average", board.has_average && effect.column + 1 == board.columns.size()},
          {"mean", mean},
          {"low", half_width ? Json(mean - *half_width) : Json()},
          {"high", half_width ? Json(mean + *half_width) : Json()},
          {"seeds", count},
          {"verdict", !effect.interval.is_apart_from_zero()  ? "open"
                      : (mean > 0) == board.larger_is_better ? "better"
                                                             : "worse"},
          {"published", optional_json(effect.published)},
          {"text", Summary{count, mean, half_width}.text(board.digits)}};
}

Json json_of(const Board& board, const Agreement& agreement) {
  Json reversed = Json::array();
  for (const Reversal& reversal : agreement.reversed)
    reversed.push_back(
        {{"better", reversal.better},
         {"worse", reversal.worse},
         {"published", optional_json(reversal.published)},
         {"text", Summary{reversal.here.count, reversal.here.mean, reversal.here.half_width}.text(board.digits)},
         {"seeds", reversal.here.count},
         {"certain", reversal.certain}});
  return {{"column", board.columns[agreement.column].title},
          {"is_average", board.has_average && agreement.column + 1 == board.columns.size()},
          {"rows", agreement.rows},
          {"spearman", optional_json(agreement.spearman)},
          {"kendall", optional_json(agreement.kendall)},
          {"pairs", agreement.pairs},
          {"same", agreement.same},
          {"reversed", reversed},
          {"certain", agreement.certain()},
          {"sentence", sentence_of(board, agreement)}};
}

double median_of(const SweepRow& row, const std::string& measure) {
  std::vector<double> values;
  for (const Json* line : row.runs) values.push_back(line->at("measures").at(measure));
  return bench::median(values);
}

// Cell by cell: what was chosen, the parameters, every measure.
Json details_of(const Study& study) {
  Json rows = Json::array();
  for (const SweepRow& row : study.rows) {
    Json measures = Json::object();
    for (const auto& [name, summary] : row.measures)
      if (summary.count > 0) measures[name] = study.timed ? fixed(median_of(row, name), 2) : summary.text(4);
    rows.push_back({{"labels", row.labels},
                    {"choice", row.choice},
                    {"parameters", row.parameters > 0 ? grouped(row.parameters) : ""},
                    {"seeds", row.runs.size()},
                    {"failed", row.failed},
                    {"measures", measures}});
  }
  return rows;
}

std::vector<std::pair<int64_t, double>> thinned(const std::map<int64_t, double>& points) {
  std::vector<std::pair<int64_t, double>> few;
  const size_t every = (points.size() + kMostPoints - 1) / kMostPoints;
  size_t place = 0;
  for (const auto& [step, value] : points)
    if (++place % every == 0 || place == points.size()) few.emplace_back(step, rounded(value));
  return few;
}

// measure -> the curves that have it.
Json curves_of(const Study& study, const Board& board) {
  Json out = Json::object();
  const auto column_axis = std::find(study.axes.begin(), study.axes.end(), board.column_axis);
  for (const Curve& curve : study.curves) {
    std::string row, column;
    for (size_t i = 0; i < study.axes.size(); ++i)
      if (column_axis != study.axes.end() && study.axes[i] == *column_axis)
        column = curve.labels[i];
      else
        row += (row.empty() ? "" : ", ") + curve.labels[i];
    for (const auto& [measure, points] : curve.measures)
      out[measure].push_back({{"row", row}, {"column", column}, {"seed", curve.seed}, {"points", thinned(points)}});
  }
  return out;
}

// "train.steps" -> 800.
std::map<std::string, Json> settings_in(const Json& recipe) {
  std::map<std::string, Json> settings;
  const Json flat = recipe.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    std::string name = pointer.empty() ? pointer : pointer.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    if (name != "train.seed" && name != "seed") settings[name] = value;
  }
  return settings;
}

// What the program was told, and the defaults it took, where the line says them.
Json configuration_in(const Json& line) {
  Json all = line.value("defaults", Json::object());
  all.merge_patch(line.at("recipe"));
  return all;
}

// What all runs have, and what each cell has of its own.
Json configurations_of(const Study& study) {
  std::vector<std::pair<const SweepRow*, std::map<std::string, Json>>> all;
  for (const SweepRow& row : study.rows)
    if (!row.runs.empty()) all.emplace_back(&row, settings_in(configuration_in(*row.runs[0])));
  Json out{{"common", Json::object()}, {"cells", Json::array()}};
  std::set<std::string> common;
  for (const auto& [name, value] : all.empty() ? std::map<std::string, Json>() : all[0].second) {
    const bool shared = std::all_of(all.begin(), all.end(), [&, n = name, v = value](const auto& one) {
      const auto found = one.second.find(n);
      return found != one.second.end() && found->second == v;
    });
    if (!shared) continue;
    common.insert(name);
    out["common"][name] = value;
  }
  for (const auto& [row, settings] : all) {
    Json own = Json::object();
    for (const auto& [name, value] : settings)
      if (!common.count(name)) own[name] = value;
    out["cells"].push_back({{"labels", row->labels}, {"settings", own}});
  }
  return out;
}

Json json_of(const Study& study, const Claim* claim) {
  const Board board = board_of(study, claim);
  Json out{{"kind", study.kind},
           {"place", study.place},
           {"title", claim ? claim->title : study.place},
           {"question", claim ? claim->question : ""},
           {"source", claim ? claim->source : ""},
           {"remark", claim ? claim->remark : ""},
           {"command", !study.command.empty() ? study.command
                       : claim                ? claim->command
                                              : ""},
           {"again", study.again},
           {"axes", study.axes},
           {"along", claim ? claim->along : Claim().along},
           {"board", json_of(board)},
           {"agreements", Json::array()},
           {"effects", Json::array()},
           {"curves", curves_of(study, board)},
           {"details", details_of(study)},
           {"configurations", configurations_of(study)}};
  for (const Agreement& agreement : agreements_of(board)) out["agreements"].push_back(json_of(board, agreement));
  for (const Effect& effect : effects_of(board)) out["effects"].push_back(json_of(board, effect));
  return out;
}

}  // namespace

Json report_document(const std::vector<Study>& studies, const std::vector<Claim>& claims, const std::string& command) {
  Json out{{"title", "Results of the Free Energy Mixer"},
           {"command", command},
           {"versions", {{"fem", version()}, {"torch", TORCH_VERSION}}},
           {"studies", Json::array()}};
  for (const Study& study : studies) out["studies"].push_back(json_of(study, claim_about(study, claims)));
  return out;
}

}  // namespace fem
