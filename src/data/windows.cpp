#include "data/windows.h"

#include <ATen/ATen.h>

#include "util/check.h"
#include "util/grouped.h"

namespace fem {

SeriesSplit split_of(int64_t rows, const SeriesSplit& given) {
  SeriesSplit split = given;
  if (split.train == 0 && split.validation == 0 && split.test == 0) {
    split.train = static_cast<int64_t>(0.7 * static_cast<double>(rows));
    split.test = static_cast<int64_t>(0.2 * static_cast<double>(rows));
    split.validation = rows - split.train - split.test;
  }
  for (const auto& [name, value] :
       {std::pair{"train_rows", split.train}, {"validation_rows", split.validation}, {"test_rows", split.test}})
    FEM_CHECK(value >= 1 && value <= rows, "windows: expected ", name, " from 1 to the ", grouped(rows),
              " rows of the table, got ", value, "; give all three of them, or none");
  FEM_CHECK(split.train + split.validation + split.test <= rows, "windows: expected train_rows, validation_rows and ",
            "test_rows of together at most ", grouped(rows), " rows, got ",
            grouped(split.train + split.validation + split.test));
  return split;
}

Windows::Windows(at::Tensor values, const SeriesSplit& split, int64_t input, int64_t horizon)
    : values_(std::move(values)), split_(split), input_(input), horizon_(horizon) {
  FEM_CHECK(count(SeriesPart::kTrain) >= 1, "windows: expected at least input + horizon = ", grouped(input + horizon),
            " rows to train on, got ", grouped(split.train), "; shorten --input or --horizon");
  for (const auto& [part, name, rows] :
       {std::tuple{SeriesPart::kValidation, "validation", split.validation}, {SeriesPart::kTest, "test", split.test}})
    FEM_CHECK(count(part) >= 1, "windows: expected at least horizon = ", grouped(horizon), " rows for ", name, ", got ",
              grouped(rows), "; shorten --horizon");
  all_ = values_.unfold(0, input_ + horizon_, 1);
}

int64_t Windows::count(SeriesPart part) const {
  switch (part) {
    case SeriesPart::kTrain:
      return split_.train - input_ - horizon_ + 1;
    case SeriesPart::kValidation:
      return split_.validation - horizon_ + 1;
    case SeriesPart::kTest:
      break;
  }
  return split_.test - horizon_ + 1;
}

int64_t Windows::first_row(SeriesPart part) const {
  switch (part) {
    case SeriesPart::kTrain:
      return 0;
    case SeriesPart::kValidation:
      return split_.train - input_;
    case SeriesPart::kTest:
      break;
  }
  return split_.train + split_.validation - input_;
}

Windows::Rows Windows::at(SeriesPart part, const at::Tensor& numbers) const {
  const at::Tensor rows = all_.index_select(0, numbers + first_row(part)).transpose(1, 2);
  return {rows.slice(1, 0, input_).contiguous(), rows.slice(1, input_).contiguous()};
}

Windows::Rows Windows::range(SeriesPart part, int64_t first, int64_t last) const {
  return at(part, at::arange(first, last, at::kLong));
}

}  // namespace fem
