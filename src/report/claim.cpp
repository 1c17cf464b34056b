#include "report/claim.h"

#include <algorithm>

#include "io/options_json.h"
#include "io/toml.h"
#include "report/cost.h"
#include "util/check.h"
#include "util/shared_files.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A figure is a number, what stands in the paper where it is less than that, or {} for none.
Published published_of(const json& in, const std::string& whose) {
  if (in.is_number()) return {in.dump(), in.get<double>()};
  FEM_CHECK(in.is_object() && (in.empty() || (in.size() == 2 && in.contains("text") && in["text"].is_string() &&
                                              in.contains("value") && in["value"].is_number())),
            whose, ": expected a published figure: a number, { text = \"1 to 2\", value = 1.5 } or {}, got ",
            in.dump());
  return in.empty() ? Published{} : Published{in["text"], in["value"].get<double>()};
}

// Calls read(table) for each of an array of tables.
template <typename Read>
void for_each_table(const json& in, const char* name, const std::string& whose, Read read) {
  const json tables = in.value(name, json::array());
  FEM_CHECK(tables.is_array(), whose, ": expected [[", name, "]], got ", tables.dump());
  for (const json& table : tables) read(table);
}

bool has_label(const Study& study, const std::string& axis, const std::string& label) {
  const auto place = std::find(study.axes.begin(), study.axes.end(), axis) - study.axes.begin();
  return std::any_of(study.rows.begin(), study.rows.end(),
                     [&](const SweepRow& row) { return row.labels[static_cast<size_t>(place)] == label; });
}

bool has_axis(const Study& study, const std::string& axis) {
  return std::find(study.axes.begin(), study.axes.end(), axis) != study.axes.end();
}

bool has_measure(const Study& study, const std::string& measure) {
  return study.measure == measure || std::any_of(study.rows.begin(), study.rows.end(), [&](const SweepRow& row) {
           return std::any_of(row.measures.begin(), row.measures.end(),
                              [&](const auto& known) { return known.first == measure; });
         });
}

// How many of the claim's rows these results have; none if they are of something else.
int64_t rows_of_claim(const Claim& claim, const Study& study) {
  if (!has_axis(study, claim.row_axis) || !has_measure(study, claim.measure)) return 0;
  if (!claim.column_axis.empty() && !has_axis(study, claim.column_axis)) return 0;
  const auto has_row = [&](const ClaimRow& row) { return has_label(study, claim.row_axis, row.label); };
  const auto has_column = [&](const ClaimColumn& column) { return has_label(study, claim.column_axis, column.label); };
  const bool columns = claim.column_axis.empty() || std::any_of(claim.columns.begin(), claim.columns.end(), has_column);
  return columns ? std::count_if(claim.rows.begin(), claim.rows.end(), has_row) : 0;
}

}  // namespace

Claim load_claim(const fs::path& path) {
  const std::string whose = "claim: " + path.string();
  const json in = read_toml(path, "claim");
  Claim claim;
  OptionsReader fields(whose, in);
  fields("title", claim.title, "");
  fields("question", claim.question, "");
  fields("source", claim.source, "");
  fields("remark", claim.remark, "");
  fields("command", claim.command, "");
  fields("row_axis", claim.row_axis, "");
  fields("column_axis", claim.column_axis, "");
  fields("measure", claim.measure, "");
  fields("unit", claim.unit, "");
  fields("scale", claim.scale, "");
  fields("digits", claim.digits, "");
  fields("places", claim.places, "");
  fields("along", claim.along, "");
  for (const char* name : {"column", "row", "ladder"}) fields.skip(name);
  fields.finish();
  FEM_CHECK(!claim.row_axis.empty() && !claim.measure.empty(), whose, ": expected row_axis and measure");
  for_each_table(in, "column", whose, [&](const json& table) {
    OptionsReader column(whose + ": column", table);
    claim.columns.emplace_back();
    column("label", claim.columns.back().label, "");
    column("title", claim.columns.back().title, "");
    column.finish();
  });
  const size_t figures = claim.columns.size() + (claim.columns.size() > 1 ? 1 : 0);
  for_each_table(in, "row", whose, [&](const json& table) {
    OptionsReader row(whose + ": row", table);
    claim.rows.emplace_back();
    row("label", claim.rows.back().label, "");
    row("title", claim.rows.back().title, "");
    row.skip("published");
    row.finish();
    const json published = table.value("published", json::array());
    FEM_CHECK(published.is_array() && (published.empty() || published.size() == std::max<size_t>(figures, 1)), whose,
              ": expected ", std::max<size_t>(figures, 1), " published figures of ", claim.rows.back().label, ", got ",
              published.dump());
    for (const json& one : published) claim.rows.back().published.push_back(published_of(one, whose));
  });
  for_each_table(in, "ladder", whose, [&](const json& table) {
    OptionsReader ladder(whose + ": ladder", table);
    claim.ladders.emplace_back();
    ladder("title", claim.ladders.back().title, "");
    ladder("rungs", claim.ladders.back().rungs, "");
    ladder("steps", claim.ladders.back().steps, "");
    ladder.finish();
    FEM_CHECK(claim.ladders.back().rungs.size() == claim.ladders.back().steps.size() + 1, whose,
              ": expected a step between every two rungs of ", claim.ladders.back().title, ", got ", table.dump());
  });
  return claim;
}

std::vector<Claim> shipped_claims() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(shared_files() / "experiments"))
    if (entry.path().filename() == "claim.toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Claim> claims;
  for (const fs::path& file : files) claims.push_back(load_claim(file));
  claims.push_back(cost_claim());
  return claims;
}

const Claim* claim_about(const Study& study, const std::vector<Claim>& claims) {
  const Claim* best = nullptr;
  int64_t most = 0;
  for (const Claim& claim : claims)
    if (const int64_t rows = rows_of_claim(claim, study); rows > most) {
      best = &claim;
      most = rows;
    }
  return best;
}

}  // namespace fem
