#include "data/series.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "data/csv.h"
#include "text/utf8.h"
#include "util/check.h"
#include "util/grouped.h"
#include "util/nearest.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr std::array kTimeNames{"date", "time", "timestamp", "datetime", "date_time", "ds"};
constexpr std::array kSentinels{-999.0, -9999.0, -99999.0, -999999.0, 9999.0, 99999.0, 999999.0};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_missing(const std::string& cell) {
  static const std::set<std::string> spellings{"", "na", "n/a", "nan", "null", "none", "-", "?", "nil"};
  return cell.size() <= 4 && spellings.contains(lower(cell));
}

// Latin 1 where it is no UTF-8.
std::string utf8(const std::string& text) {
  if (utf8_prefix(text) == text.size()) return text;
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      out += c;
    else
      out += {static_cast<char>(0xC0 | byte >> 6), static_cast<char>(0x80 | (byte & 0x3F))};
  }
  return out;
}

// A number; with another separator than the comma, 3,14 is one too.
std::optional<double> number_in(const std::string& cell, char separator) {
  std::string text = cell;
  if (separator != ',' && std::count(text.begin(), text.end(), ',') == 1 && text.find('.') == std::string::npos)
    std::replace(text.begin(), text.end(), ',', '.');
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::infinity();
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// One column while it is read.
struct Column {
  std::string name;
  size_t place;  // in a row
  std::vector<double> values;
  int64_t texts = 0, text_row = 0;
  std::string text;  // the first that is no number

  bool is_text() const {
    return texts > 0 && std::all_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
  }
};

class Reader {
 public:
  explicit Reader(const SeriesOptions& options) : options_(options), whose_("series: " + options.csv.string() + ": ") {}

  Series read() {
    const CsvFile file = for_each_csv_row(options_.csv, [this](const CsvRow& row, char separator) {
      separator_ = separator;
      if (row.number == 1) return take_header(row);
      if (row.number == 2) find_time(row);
      take(row);
    });
    FEM_CHECK(rows_ >= 2, whose_, "expected a header and at least 2 rows of numbers, got ", rows_,
              rows_ == 1 ? " row" : " rows");
    series_.checksum = file.checksum;
    keep_numbers();
    look_at_stamps();
    for (Column& column : columns_) complete(column);
    to_tensor();
    return std::move(series_);
  }

 private:
  void take_header(const CsvRow& row) {
    names_ = row.cells;
    std::set<std::string> known;
    bool numbers = true;
    for (size_t i = 0; i < names_.size(); ++i) {
      numbers = numbers && !names_[i].empty() && number_in(names_[i], separator_);
      names_[i] = utf8(names_[i]);
      if (names_[i].empty() && i > 0) names_[i] = "column " + std::to_string(i + 1);
      FEM_CHECK(known.insert(names_[i]).second, whose_, "two columns have the name ", shown(names_[i]),
                "; give every column its own");
    }
    FEM_CHECK(!numbers, whose_, "expected a header with the names of the columns, got numbers in the first row");
  }

  size_t place_of(const std::string& name, const char* what) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    FEM_CHECK(found != names_.end(), whose_, "there is no column ", shown(name), ", which is to be ", what,
              did_you_mean(name, names_));
    return static_cast<size_t>(found - names_.begin());
  }

  // With the first row of values: which column has times, and which are read.
  void find_time(const CsvRow& row) {
    constexpr auto kNone = static_cast<size_t>(-1);
    size_t time = kNone;
    if (!options_.time.empty()) {
      time = place_of(options_.time, "the time");
    } else {
      const bool named = names_[0].empty() || std::count(kTimeNames.begin(), kTimeNames.end(), lower(names_[0])) > 0;
      const bool dated = !number_in(row.cells[0], separator_) && StampFormat::of(row.cells[0]);
      if (named || dated) time = 0;
    }
    if (time != kNone) {
      time_place_ = time;
      series_.time = names_[time].empty() ? "row" : names_[time];
      series_.notation = StampFormat::of(row.cells[time]);
      FEM_CHECK(series_.notation, whose_, "row ", row.number,
                ": expected a time such as 2016-07-01 00:15:00 in column ", shown(names_[time]), ", got ",
                shown(row.cells[time]), "; name the column of times with --time");
    }
    std::vector<std::string> wanted = options_.columns;
    if (wanted.empty()) wanted = names_;
    for (const std::string& name : wanted) {
      const size_t place = place_of(name, "read");
      if (time_place_ != place) columns_.push_back({name.empty() ? "column 1" : name, place, {}});
    }
    const auto count = static_cast<int64_t>(columns_.size());
    FEM_CHECK(count > 0, whose_, "there is no column besides the times; expected at least one of numbers");
    FEM_CHECK(count <= kMostSeries, whose_, "expected at most ", grouped(kMostSeries), " columns of numbers, got ",
              grouped(count), "; choose some with --columns");
  }

  void take(const CsvRow& row) {
    ++rows_;
    FEM_CHECK(rows_ * static_cast<int64_t>(columns_.size()) <= kMostReadings, whose_, "it has more than ",
              grouped(kMostReadings), " numbers; choose some columns with --columns");
    if (time_place_) take_stamp(row);
    for (Column& column : columns_) {
      const std::string& cell = row.cells[column.place];
      const auto number = is_missing(cell) ? kMissing : number_in(cell, separator_);
      if (!number && column.texts++ == 0) {
        column.text = cell;
        column.text_row = row.number;
      }
      FEM_CHECK(!number || !(std::abs(*number) > kLargestReading), whose_, "row ", row.number, ", column ",
                shown(column.name), ": ", shown(cell), " is too large to compute with; expected at most 1e30");
      column.values.push_back(number.value_or(kMissing));
    }
  }

  void take_stamp(const CsvRow& row) {
    const std::string& cell = row.cells[*time_place_];
    const auto stamp = series_.notation->parse(cell);
    FEM_CHECK(stamp, whose_, "row ", row.number, ": expected a time written as that of the first row is, ",
              series_.notation->format().empty() ? "a number" : series_.notation->format(), ", got ", shown(cell));
    FEM_CHECK(options_.as_is || series_.stamps.empty() || *stamp > series_.stamps.back(), whose_, "row ", row.number,
              ": the time ", shown(cell),
              series_.stamps.empty() || *stamp < series_.stamps.back()
                  ? " is before that of the row above; sort the rows by time"
                  : " is that of the row above, too; keep one row of each time");
    series_.stamps.push_back(*stamp);
  }

  // Columns of text are left out unless they were asked for; text among numbers is an error.
  void keep_numbers() {
    std::string left_out;
    for (const Column& column : columns_) {
      if (column.texts == 0) continue;
      FEM_CHECK(column.is_text() && options_.columns.empty(), whose_, "row ", column.text_row, ", column ",
                shown(column.name), ": expected a number, got ", shown(column.text),
                separator_ == ',' ? "" : " (decimals have a point or a comma, thousands nothing)");
      left_out += (left_out.empty() ? "" : ", ") + column.name;
    }
    std::erase_if(columns_, [](const Column& column) { return column.texts > 0; });
    if (!left_out.empty()) series_.notes.push_back("left out, because they hold text: " + left_out);
    FEM_CHECK(!columns_.empty(), whose_, "no column holds numbers");
  }

  void look_at_stamps() {
    if (!series_.notation) {
      series_.notes.emplace_back("there is no column of times: rows are taken as equally far apart");
      return;
    }
    series_.step = series_.notation->step_of(series_.stamps);
    const int64_t irregular = series_.notation->irregular(series_.stamps, series_.step);
    if (irregular > 0)
      series_.notes.push_back(grouped(irregular) + " of " + grouped(rows_ - 1) + " rows are not " +
                              series_.notation->words(series_.step) +
                              " after the row above: rows are taken as equally far apart");
  }

  void complete(Column& column) {
    const std::string name = "column " + shown(column.name) + ": ";
    FEM_CHECK(std::any_of(column.values.begin(), column.values.end(), [](double v) { return !std::isnan(v); }), whose_,
              "column ", shown(column.name), " has no value at all; leave it out with --columns");
    if (!options_.as_is) drop_sentinels(column, name);
    int64_t filled = 0;
    double before = *std::find_if(column.values.begin(), column.values.end(), [](double v) { return !std::isnan(v); });
    const double first = before;
    bool constant = true;
    for (double& value : column.values) {
      filled += std::isnan(value);
      if (std::isnan(value)) value = before;
      before = value;
      constant = constant && value == first;
    }
    if (filled > 0)
      series_.notes.push_back(name + grouped(filled) + " missing values, each filled with the value before it");
    if (constant) series_.notes.push_back(name + "all values are the same");
  }

  // A sentinel is farther from all other values than these are from each other.
  void drop_sentinels(Column& column, const std::string& name) {
    for (const double sentinel : kSentinels) {
      double low = std::numeric_limits<double>::infinity(), high = -low;
      int64_t count = 0;
      for (const double value : column.values) {
        count += value == sentinel;
        if (std::isnan(value) || value == sentinel) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
      const double away = std::max(low - sentinel, sentinel - high);
      if (count == 0 || !(high > low) || away <= high - low) continue;
      std::replace(column.values.begin(), column.values.end(), sentinel, kMissing);
      series_.notes.push_back(name + grouped(count) + " values of " + std::to_string(std::llround(sentinel)) +
                              " stand for missing ones");
    }
  }

  void to_tensor() {
    const auto count = static_cast<int64_t>(columns_.size());
    at::Tensor by_column = at::empty({count, rows_}, at::kDouble);
    for (int64_t i = 0; i < count; ++i) {
      std::copy(columns_[i].values.begin(), columns_[i].values.end(), by_column[i].data_ptr<double>());
      series_.names.push_back(columns_[i].name);
    }
    series_.values = by_column.t().contiguous();
  }

  const SeriesOptions& options_;
  const std::string whose_;
  char separator_ = ',';
  std::vector<std::string> names_;
  std::vector<Column> columns_;
  std::optional<size_t> time_place_;
  int64_t rows_ = 0;
  Series series_;
};

}  // namespace

std::string Series::stamp_text(int64_t row) const {
  if (!notation) return std::to_string(row);
  if (row < static_cast<int64_t>(stamps.size())) return notation->text(stamps[row]);
  return notation->text(notation->later(stamps.back(), step, row + 1 - static_cast<int64_t>(stamps.size())));
}

Series read_series(const SeriesOptions& options) { return Reader(options).read(); }

}  // namespace fem
