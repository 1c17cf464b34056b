// Times of the rows of a table: read in the notation that the first of them has, and written in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fem {

// How far apart rows are: whole months (a year is twelve) or a number of seconds, or of whatever a plain number counts.
struct StampStep {
  int64_t months = 0;
  double units = 0;
};

class StampFormat {
 public:
  // The notation of a text such as "2016-07-01 00:15:00", "2016/7/1 0:15", "01.07.2016 00:15" or "2016-07-01T00:15Z"; a
  // number is one, too.
  static std::optional<StampFormat> of(const std::string& text);
  // From how format() names it.
  static StampFormat named(const std::string& format);

  std::optional<double> parse(const std::string& text) const;  // seconds since 1970, or the number itself
  std::string text(double stamp) const;
  // The stamp `steps` steps later.
  double later(double stamp, const StampStep& step, int64_t steps) const;
  // The usual distance of neighbours.
  StampStep step_of(const std::vector<double>& stamps) const;
  // How many neighbours are not that far apart.
  int64_t irregular(const std::vector<double>& stamps, const StampStep& step) const;
  // "15 minutes", "1 day", "1 month"
  std::string words(const StampStep& step) const;
  // Rows of a season: a day of rows that are closer, a week of days, a year of months; 0 if none is known.
  int64_t season(const StampStep& step) const;

  const std::string& format() const { return format_; }  // strptime's; empty: plain numbers

 private:
  explicit StampFormat(std::string format) : format_(std::move(format)) {}

  std::string format_;
};

}  // namespace fem
