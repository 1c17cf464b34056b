// A table of numbers over time, as somebody's CSV file has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/stamps.h"

namespace fem {

inline constexpr int64_t kMostSeries = 4096;       // columns
inline constexpr double kLargestReading = 1e30;    // of a number
inline constexpr int64_t kMostReadings = 1 << 28;  // numbers of a table

struct SeriesOptions {
  std::filesystem::path csv;
  std::string time;                  // the column of times; none: the first, if it looks like one
  std::vector<std::string> columns;  // those to read; none: all that hold numbers
  bool as_is = false;                // rows and values as they stand: no sentinels, times in any order
};

struct Series {
  std::vector<std::string> names;  // of the columns
  at::Tensor values;               // [T, C] float64, all finite
  std::vector<double> stamps;      // of the rows; none: there is no column of times
  std::string time;                // the name of that column
  std::optional<StampFormat> notation;
  StampStep step;
  std::string checksum;            // of the file's text
  std::vector<std::string> notes;  // what was found and what was done about it, a sentence each

  int64_t rows() const { return values.size(0); }
  // The time of a row, or of one after the last; its number, from 0, if there are no times.
  std::string stamp_text(int64_t row) const;
};

// What is missing is filled with the value before it, sentinels (-9999 and the like, far from all others) count as
// missing, columns of text are left out: each with a note. What cannot be read for numbers over time throws one
// sentence that names row and column.
Series read_series(const SeriesOptions& options);

}  // namespace fem
