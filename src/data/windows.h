// A table cut into windows: what a forecast is made of, and what came then.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace fem {

// Rows of a table in the order of time: those to learn from, to choose by and to report.
struct SeriesSplit {
  int64_t train = 0, validation = 0, test = 0;
};
// Nothing given: seven tenths, the rest, and two tenths of the rows. Throws one sentence if they are more than there
// are.
SeriesSplit split_of(int64_t rows, const SeriesSplit& given);

enum class SeriesPart { kTrain, kValidation, kTest };

class Windows {
 public:
  // values [T, C]. Throws one sentence if a part has not a single window.
  Windows(at::Tensor values, const SeriesSplit& split, int64_t input, int64_t horizon);

  // Windows whose future lies in the part, one from every row: in training their past does, too, while validation and
  // test look back into the rows before them.
  int64_t count(SeriesPart part) const;

  struct Rows {
    at::Tensor past, future;  // [B, input, C], [B, horizon, C]
  };
  Rows at(SeriesPart part, const at::Tensor& numbers) const;  // numbers [B] int64, of the part's windows
  Rows range(SeriesPart part, int64_t first, int64_t last) const;

  int64_t input() const { return input_; }
  int64_t horizon() const { return horizon_; }

 private:
  int64_t first_row(SeriesPart part) const;  // of the first window

  at::Tensor values_, all_;  // all_ [windows, C, input + horizon] is a view
  SeriesSplit split_;
  int64_t input_, horizon_;
};

}  // namespace fem
