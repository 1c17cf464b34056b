// The work of a linear-time read among threads, the same for all of them: sequences are cut into segments, and segments
// times groups are shared out in parts of nearly equal cost. What a part does depends on the number of threads, never
// on their timing.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "cpu/segment.h"
#include "ops/sequences.h"

namespace fem {

using cpu::Groups;
using cpu::Segment;

// What a read's kernels ask for.
struct ScanPlan {
  int64_t groups;       // heads, or groups of channels
  int64_t token_cost;   // elements that a token of a group touches
  int64_t start_cost;   // tokens' worth of work to begin a segment
  int64_t unit;         // tokens from one checkpoint to the next; sequences are cut there
  bool keeps_first;     // the state before a sequence is a checkpoint, too
  int64_t least_units;  // of a segment of a cut sequence
  int64_t least_parts;  // of a cut sequence: of fewer, the pass ahead takes as long as it wins
};

// Some groups of a segment, to be done by a part.
struct Share {
  int64_t part, segment;
  int64_t rank;  // among the shares of its segment
  Groups groups;
};

// Which way a scan goes: states from the first segment of a sequence to the last, gradients of states from the last.
enum class Way { kForward, kBackward };

// The states [size] with which segments are entered and left, whichever way. At the ends of sequences they are the
// caller's, between the segments of one sequence checkpoints (forward) or memory of their own (backward).
class ScanStates {
 public:
  // given, wanted [N, size]: undefined means nothing, and not wanted.
  ScanStates(Way way, const std::vector<Segment>& segments, int64_t size, at::Tensor given, at::Tensor inner,
             at::Tensor wanted);

  Way way() const { return way_; }
  bool begins(int64_t i) const { return way_ == Way::kForward ? segments_[i].first : segments_[i].last; }
  bool ends(int64_t i) const { return way_ == Way::kForward ? segments_[i].last : segments_[i].first; }
  const float* entering(int64_t i) const;  // null: nothing
  float* leaving(int64_t i) const;         // null: not wanted
  // leaving() of the segment that ends its sequence. Of others null: the pass ahead has written it.
  float* result(int64_t i) const { return ends(i) ? leaving(i) : nullptr; }

 private:
  float* before(int64_t i) const;  // a segment that is not the first

  Way way_;
  const std::vector<Segment>& segments_;
  int64_t size_;
  at::Tensor given_, inner_, wanted_;
};

class ScanWork {
 public:
  ScanWork(const std::vector<Sequence>& sequences, const ScanPlan& plan);

  const std::vector<Segment>& segments() const { return segments_; }
  int64_t parts() const { return static_cast<int64_t>(first_share_.size()) - 1; }
  int64_t most_shares() const { return most_shares_; }  // of a segment

  ScanStates states(int64_t size, const at::Tensor& initial, const at::Tensor& checkpoints,
                    const at::Tensor& state = {}) const;
  ScanStates gradients(int64_t size, const at::Tensor& grad_state, const at::Tensor& grad_initial) const;

  // body(share, segment, scratch) for all shares, in parallel; scratch is the part's own.
  template <typename Body>
  void run(int64_t scratch_floats, Body&& body) const {
    const at::Tensor scratch = at::empty({parts(), scratch_floats}, at::kFloat);
    at::parallel_for(0, parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        for (int64_t i = first_share_[part]; i < first_share_[part + 1]; ++i)
          body(shares_[i], segments_[shares_[i].segment], scratch.data_ptr<float>() + part * scratch_floats);
    });
  }

  // The same; returns the largest result of every part.
  template <typename Body>
  at::Tensor largest(int64_t scratch_floats, Body&& body) const {
    const at::Tensor most = at::zeros({parts()}, at::kFloat);
    run(scratch_floats, [&, most = most.data_ptr<float>()](const Share& share, const Segment& segment, float* scratch) {
      most[share.part] = std::max(most[share.part], body(share, segment, scratch));
    });
    return most;
  }

  // The pass ahead, which finds the states between the segments of cut sequences. advance(segment, groups, entering,
  // leaving, decay, scratch) leaves what a segment makes of the state it is entered with, of nothing where that is not
  // known yet, and in decay [decay_floats] what it does to any; then, one segment after the other, join(segment,
  // groups, entering, decay, leaving) adds what becomes of it.
  template <typename Advance, typename Join>
  void run_ahead(const ScanStates& states, int64_t decay_floats, int64_t scratch_floats, Advance&& advance,
                 Join&& join) const {
    const auto count = static_cast<int64_t>(segments_.size());
    if (count == sequences_) return;  // none is cut
    const at::Tensor decays = at::empty({count, decay_floats}, at::kFloat);
    const auto decay = [&](int64_t i) { return decays.data_ptr<float>() + i * decay_floats; };
    run(scratch_floats, [&](const Share& share, const Segment& segment, float* scratch) {
      const int64_t i = share.segment;
      const float* known = states.begins(i) ? states.entering(i) : nullptr;
      if (!states.ends(i)) advance(segment, share.groups, known, states.leaving(i), decay(i), scratch);
    });
    at::parallel_for(0, groups_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = 0; n < count; ++n) {
        const int64_t i = states.way() == Way::kForward ? n : count - 1 - n;
        if (!states.begins(i) && !states.ends(i))
          join(segments_[i], Groups{begin, end}, states.entering(i), decay(i), states.leaving(i));
      }
    });
  }

 private:
  int64_t sequences_, groups_, most_shares_ = 0;
  std::vector<Segment> segments_;
  std::vector<Share> shares_;
  std::vector<int64_t> first_share_;  // of each part, and one past the last
};

}  // namespace fem
