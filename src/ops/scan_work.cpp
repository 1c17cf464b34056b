#include "ops/scan_work.h"

#include <utility>

#include "cpu/partition.h"

namespace fem {
namespace {

constexpr int64_t kLeastElements = 8192;  // for which another thread pays

// Into how many segments: as many as the threads' equal shares that it is, a group at a time.
int64_t parts_of(int64_t tokens, int64_t all_tokens, const ScanPlan& plan) {
  const int64_t work = all_tokens * plan.groups, units = (tokens + plan.unit - 1) / plan.unit;
  const int64_t shares = work ? tokens * at::get_num_threads() / work : 1;
  const int64_t parts = std::min(shares, units / plan.least_units);
  return parts < plan.least_parts ? 1 : parts;
}

}  // namespace

ScanStates::ScanStates(Way way, const std::vector<Segment>& segments, int64_t size, at::Tensor given, at::Tensor inner,
                       at::Tensor wanted)
    : way_(way),
      segments_(segments),
      size_(size),
      given_(std::move(given)),
      inner_(std::move(inner)),
      wanted_(std::move(wanted)) {}

float* ScanStates::before(int64_t i) const {
  // Every sequence has one segment with nothing before it.
  const int64_t row = way_ == Way::kForward ? segments_[i].checkpoint : i - segments_[i].sequence - 1;
  return inner_.data_ptr<float>() + row * size_;
}

const float* ScanStates::entering(int64_t i) const {
  if (!begins(i)) return before(way_ == Way::kForward ? i : i + 1);
  return given_.defined() ? given_.const_data_ptr<float>() + segments_[i].sequence * size_ : nullptr;
}

float* ScanStates::leaving(int64_t i) const {
  if (!ends(i)) return before(way_ == Way::kForward ? i + 1 : i);
  return wanted_.defined() ? wanted_.data_ptr<float>() + segments_[i].sequence * size_ : nullptr;
}

ScanWork::ScanWork(const std::vector<Sequence>& sequences, const ScanPlan& plan)
    : sequences_(static_cast<int64_t>(sequences.size())), groups_(plan.groups) {
  int64_t tokens = 0, checkpoint = 0;
  for (const Sequence& s : sequences) tokens += s.end - s.begin;
  for (int64_t n = 0; n < sequences_; ++n) {
    const auto [batch, begin, end] = sequences[n];
    const int64_t units = (end - begin + plan.unit - 1) / plan.unit, parts = parts_of(end - begin, tokens, plan);
    if (!plan.keeps_first && units > 0) --checkpoint;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t from = units * part / parts, to = units * (part + 1) / parts;
      segments_.push_back({n, batch, begin + from * plan.unit, std::min(begin + to * plan.unit, end), checkpoint + from,
                           part == 0, part + 1 == parts});
    }
    checkpoint += units;
  }

  std::vector<double> costs;
  for (const Segment& s : segments_)
    costs.insert(costs.end(), groups_, static_cast<double>(s.end - s.begin + plan.start_cost));
  const int64_t starts = static_cast<int64_t>(segments_.size()) * plan.start_cost;
  const int64_t enough = (tokens + starts) * groups_ * plan.token_cost / kLeastElements + 1;
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), enough);
  const std::vector<int64_t> borders = cpu::equal_cost_borders(costs, 1, parts);
  first_share_ = {0};
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t item = borders[part], next; item < borders[part + 1]; item = next) {
      const int64_t segment = item / groups_, from = segment * groups_;
      next = std::min(from + groups_, borders[part + 1]);
      const bool again = !shares_.empty() && shares_.back().segment == segment;
      shares_.push_back({part, segment, again ? shares_.back().rank + 1 : 0, {item - from, next - from}});
      most_shares_ = std::max(most_shares_, shares_.back().rank + 1);
    }
    first_share_.push_back(static_cast<int64_t>(shares_.size()));
  }
}

ScanStates ScanWork::states(int64_t size, const at::Tensor& initial, const at::Tensor& checkpoints,
                            const at::Tensor& state) const {
  return {Way::kForward, segments_, size, initial, checkpoints, state};
}

ScanStates ScanWork::gradients(int64_t size, const at::Tensor& grad_state, const at::Tensor& grad_initial) const {
  const at::Tensor inner = at::empty({static_cast<int64_t>(segments_.size()) - sequences_, size}, at::kFloat);
  return {Way::kBackward, segments_, size, grad_state, inner, grad_initial};
}

}  // namespace fem
