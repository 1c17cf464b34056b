#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace fem {

// Calls read(batch_of) for every run of neighbouring sequences of one length, which are a batch: batch_of makes [n, L,
// ..] of the sequences' part of rows [1, T, ..], and read returns [n, L, ..]. All of it in a row again; nothing if it
// is empty.
template <typename Read>
std::vector<at::Tensor> every_length(const std::vector<int64_t>& borders, const Read& read) {
  std::vector<at::Tensor> reads;
  for (size_t first = 0, next; first + 1 < borders.size(); first = next) {
    const int64_t length = borders[first + 1] - borders[first];
    for (next = first + 1; next + 1 < borders.size() && borders[next + 1] - borders[next] == length;) ++next;
    if (length == 0) continue;
    const auto batch_of = [&](const at::Tensor& rows) {
      return rows.narrow(1, borders[first], borders[next] - borders[first]).unflatten(1, {-1, length}).squeeze(0);
    };
    reads.push_back(read(batch_of).flatten(0, 1).unsqueeze(0));
  }
  return reads;
}

}  // namespace fem
