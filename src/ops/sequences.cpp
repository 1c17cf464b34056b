#include "ops/sequences.h"

#include <ATen/ATen.h>

#include "ops/checks.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kCumulative = "; give the sequences' lengths summed up, a 0 before the first";

}  // namespace

void check_borders(const char* op, const at::Tensor& cu_seqlens, const c10::SymInt& length) {
  FEM_CHECK(cu_seqlens.dim() == 1 && cu_seqlens.sym_size(0) >= 2 &&
                (cu_seqlens.scalar_type() == at::kInt || cu_seqlens.scalar_type() == at::kLong),
            op, ": expected cu_seqlens as int32 or int64 [n + 1], got ", cu_seqlens.scalar_type(), " ",
            shape_of(cu_seqlens), kCumulative);
  if (is_plain(cu_seqlens) && !length.is_symbolic()) borders_of(cu_seqlens, length.expect_int(), op);
}

std::vector<int64_t> borders_of(const at::Tensor& cu_seqlens, int64_t length, const char* op) {
  const at::Tensor values = cu_seqlens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* begin = values.const_data_ptr<int64_t>();
  std::vector<int64_t> borders(begin, begin + values.numel());
  FEM_CHECK(borders.front() == 0 && borders.back() == length, op, ": cu_seqlens must run from 0 to T=", length,
            ", got ", borders.front(), " ... ", borders.back(), kCumulative);
  for (size_t s = 0; s + 1 < borders.size(); ++s)
    FEM_CHECK(borders[s] <= borders[s + 1], op, ": cu_seqlens must not decrease, got ", borders[s], " before ",
              borders[s + 1], " at index ", s, kCumulative);
  return borders;
}

std::vector<Sequence> sequences_of(int64_t batch, int64_t length, const OptionalTensor& cu_seqlens, const char* op) {
  std::vector<Sequence> sequences;
  if (cu_seqlens) {
    const std::vector<int64_t> borders = borders_of(*cu_seqlens, length, op);
    for (size_t s = 0; s + 1 < borders.size(); ++s) sequences.push_back({0, borders[s], borders[s + 1]});
  } else {
    for (int64_t b = 0; b < batch; ++b) sequences.push_back({b, 0, length});
  }
  return sequences;
}

}  // namespace fem
