#pragma once

#include <string>
#include <vector>

#include "util/grouped.h"

namespace fem {

// Rows of text in aligned columns: the first column to the left, numbers and the rest to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string str() const;  // with a rule under the header, every line ended

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Digits after the point fixed: fixed(0.98765, 2) = "0.99".
std::string fixed(double value, int digits);

}  // namespace fem
