#include "fem/state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "util/check.h"

namespace fem {
namespace {

const std::string kCache = "cache.", kAccumulator = "accumulator.";

at::Tensor copy_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }

// What from_tensors finds in an entry.
int64_t number_in(const at::Tensor& tensor) {
  FEM_CHECK(tensor.numel() == 1 && tensor.scalar_type() == at::kLong,
            "MixerState::from_tensors: expected tokens as one Long, got ", tensor.scalar_type(), " ", shape_of(tensor));
  const auto tokens = tensor.item<int64_t>();
  FEM_CHECK(tokens >= 0, "MixerState::from_tensors: expected tokens of at least 0, got ", tokens);
  return tokens;
}

std::string text_in(const at::Tensor& tensor) {
  FEM_CHECK(tensor.dim() == 1 && tensor.scalar_type() == at::kByte,
            "MixerState::from_tensors: expected layer as Byte [characters], got ", tensor.scalar_type(), " ",
            shape_of(tensor));
  const at::Tensor bytes = tensor.to(at::kCPU).contiguous();
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

const at::Tensor& of_tokens(const std::string& name, const at::Tensor& tensor) {
  FEM_CHECK(tensor.dim() >= 2, "MixerState::from_tensors: expected ", name, " of shape [B, T, ...], got ",
            shape_of(tensor));
  return tensor;
}

void check_positions(const MixerState& state) {
  if (!state.positions.defined() || state.positions.numel() == 0) return;
  const at::Tensor& p = state.positions;
  FEM_CHECK(p.dim() == 1 && p.scalar_type() == at::kLong, "MixerState::from_tensors: expected positions as Long [B], ",
            "got ", p.scalar_type(), " ", shape_of(p));
  FEM_CHECK(p.min().item<int64_t>() >= 0 && p.max().item<int64_t>() <= state.tokens,
            "MixerState::from_tensors: expected positions from 0 to the ", state.tokens, " tokens seen, got ",
            p.min().item<int64_t>(), " ... ", p.max().item<int64_t>());
}

at::Tensor rows_of(const at::Tensor& tensor, const at::Tensor& batch_index) {
  return tensor.defined() ? tensor.index_select(0, batch_index) : tensor;
}

// The same state of other tensors.
template <typename OfTensor, typename OfCache>
MixerState mapped(const MixerState& state, const OfTensor& of_tensor, const OfCache& of_cache) {
  MixerState result;
  result.layer = state.layer;
  result.tokens = state.tokens;
  result.positions = of_tensor(state.positions);
  result.conditioner = of_tensor(state.conditioner);
  for (const auto& [name, cache] : state.caches) result.caches[name] = of_cache(cache);
  for (const auto& [name, accumulator] : state.accumulators) result.accumulators[name] = of_tensor(accumulator);
  return result;
}

}  // namespace

struct TokenCache::Buffer {
  at::Tensor rows;               // [B, capacity, ...]
  std::atomic<int64_t> used{0};  // rows that some copy holds: only a copy that ends here may append in place

  // Copies may be in different threads: of those that end at length one gets the rows from there to needed.
  bool claim(int64_t length, int64_t needed) {
    return needed <= rows.size(1) && used.compare_exchange_strong(length, needed);
  }
};

at::Tensor TokenCache::rows() const { return buffer_ ? buffer_->rows.narrow(1, 0, length_) : at::Tensor(); }

void TokenCache::append(const at::Tensor& rows) {
  const int64_t needed = length_ + rows.size(1);
  if (buffer_) {
    std::vector<int64_t> expected = buffer_->rows.sizes().vec();
    expected[1] = rows.size(1);
    FEM_CHECK(rows.sizes() == expected && rows.scalar_type() == buffer_->rows.scalar_type(), "TokenCache: expected ",
              buffer_->rows.scalar_type(), " rows of shape ", at::IntArrayRef(expected), ", got ", rows.scalar_type(),
              " ", rows.sizes(), "; a state belongs to one mixer and one batch");
  }
  if (!buffer_ || !buffer_->claim(length_, needed)) {
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[1] = std::max(needed, 2 * length_);
    const auto grown = std::make_shared<Buffer>();
    grown->rows = at::empty(shape, rows.options());
    if (length_ > 0) grown->rows.narrow(1, 0, length_).copy_(this->rows());
    grown->used = needed;
    buffer_ = grown;
  }
  buffer_->rows.narrow(1, length_, rows.size(1)).copy_(rows);
  length_ = needed;
}

TokenCache TokenCache::clone() const {
  TokenCache copy;
  if (buffer_) copy.append(rows());
  return copy;
}

TokenCache TokenCache::select(const at::Tensor& batch_index) const {
  TokenCache selected;
  if (buffer_) selected.append(rows().index_select(0, batch_index));
  return selected;
}

void TokenCache::rollback(const TokenCache& snapshot) {
  if (this == &snapshot) return;
  *this = snapshot;
  if (!buffer_) return;
  // With nobody else left who could hold the rows after the snapshot, they are free again. Who copies the snapshot
  // meanwhile, in another thread, holds none of them, and can claim none before the exchange.
  int64_t used = buffer_->used;
  if (used <= length_ || buffer_.use_count() != 2) return;
  std::atomic_thread_fence(std::memory_order_acquire);  // after what those did who let it go
  buffer_->used.compare_exchange_strong(used, length_);
}

bool MixerState::is_new() const {
  return layer.empty() && tokens == 0 && !positions.defined() && !conditioner.defined() && caches.empty() &&
         accumulators.empty();
}

MixerState MixerState::clone() const {
  return mapped(*this, copy_of, [](const TokenCache& cache) { return cache.clone(); });
}

MixerState MixerState::select(const at::Tensor& batch_index) const {
  FEM_CHECK(batch_index.dim() == 1 && (batch_index.scalar_type() == at::kLong || batch_index.scalar_type() == at::kInt),
            "MixerState::select: expected batch_index as int32 or int64 [rows], got ", batch_index.scalar_type(), " ",
            shape_of(batch_index));
  return mapped(
      *this, [&](const at::Tensor& tensor) { return rows_of(tensor, batch_index); },
      [&](const TokenCache& cache) { return cache.select(batch_index); });
}

void MixerState::rollback(const MixerState& snapshot) {
  layer = snapshot.layer;
  tokens = snapshot.tokens;
  positions = snapshot.positions;
  conditioner = snapshot.conditioner;
  accumulators = snapshot.accumulators;
  std::erase_if(caches, [&](const auto& entry) { return snapshot.caches.count(entry.first) == 0; });
  for (const auto& [name, cache] : snapshot.caches) caches[name].rollback(cache);
}

std::map<std::string, at::Tensor> MixerState::to_tensors() const {
  std::map<std::string, at::Tensor> tensors{{"tokens", at::scalar_tensor(tokens, at::kLong)}};
  if (!layer.empty()) tensors["layer"] = at::tensor(std::vector<uint8_t>(layer.begin(), layer.end()));
  if (positions.defined()) tensors["positions"] = positions.clone();
  if (conditioner.defined()) tensors["conditioner"] = conditioner.clone();
  for (const auto& [name, cache] : caches)
    if (cache.rows().defined()) tensors[kCache + name] = cache.rows().clone(at::MemoryFormat::Contiguous);
  for (const auto& [name, accumulator] : accumulators) tensors[kAccumulator + name] = accumulator.clone();
  return tensors;
}

MixerState MixerState::from_tensors(const std::map<std::string, at::Tensor>& tensors) {
  FEM_CHECK(tensors.count("tokens"), "MixerState::from_tensors: expected an entry \"tokens\", as to_tensors writes it");
  MixerState state;
  for (const auto& [name, tensor] : tensors) {
    if (name == "tokens")
      state.tokens = number_in(tensor);
    else if (name == "layer")
      state.layer = text_in(tensor);
    else if (name == "positions")
      state.positions = tensor.clone();
    else if (name == "conditioner")
      state.conditioner = tensor.clone();
    else if (name.starts_with(kCache))
      state.caches[name.substr(kCache.size())].append(of_tokens(name, tensor));
    else if (name.starts_with(kAccumulator))
      state.accumulators[name.substr(kAccumulator.size())] = tensor.clone();
    else
      FEM_CHECK(false, "MixerState::from_tensors: unknown entry \"", name, "\"");
  }
  check_positions(state);
  return state;
}

}  // namespace fem
