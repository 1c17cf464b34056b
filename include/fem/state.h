#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace fem {

// Rows [B, T, ...] that grow along T. Copies are cheap and share memory; a copy that is continued differently takes
// its own memory first, so that no copy ever sees another's tokens.
class TokenCache {
 public:
  TokenCache() = default;

  int64_t length() const { return length_; }
  at::Tensor rows() const;  // [B, length, ...], a view; undefined before the first append
  void append(const at::Tensor& rows);

  TokenCache clone() const;
  TokenCache select(const at::Tensor& batch_index) const;
  void rollback(const TokenCache& snapshot);  // in place if no third copy holds the memory

 private:
  struct Buffer;
  std::shared_ptr<Buffer> buffer_;
  int64_t length_ = 0;
};

// What a causal mixer remembers between calls of forward(x, state). Start from a default-constructed one: it belongs
// to the first layer that is given it, and any other refuses it.
// A copy is a snapshot: cheap, and untouched by what is done to the original afterwards.
struct MixerState {
  std::string layer;                               // which one it belongs to, in words; empty: new
  int64_t tokens = 0;                              // rows seen, masked ones included
  at::Tensor positions;                            // [B] real tokens seen; undefined (all: tokens) before any mask
  at::Tensor conditioner;                          // [B, H_c] the conditioner's h
  std::map<std::string, TokenCache> caches;        // the prior's, one row a token
  std::map<std::string, at::Tensor> accumulators;  // the prior's, of fixed size, [B, ...]

  bool is_new() const;  // has seen nothing, and holds nothing

  MixerState clone() const;                                // shares no memory
  MixerState select(const at::Tensor& batch_index) const;  // rows by index: reorder, repeat or drop (beam search)
  void rollback(const MixerState& snapshot);  // back to an earlier copy of this state; caches are not copied

  std::map<std::string, at::Tensor> to_tensors() const;  // for fem::save_safetensors
  static MixerState from_tensors(const std::map<std::string, at::Tensor>& tensors);
};

}  // namespace fem
