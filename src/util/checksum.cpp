#include "util/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

namespace fem {

struct Checksum::State {
  XXH3_state_t value;
};

Checksum::Checksum() : state_(new State) { XXH3_128bits_reset(&state_->value); }

Checksum::~Checksum() = default;

void Checksum::add(std::string_view bytes) { XXH3_128bits_update(&state_->value, bytes.data(), bytes.size()); }

std::string Checksum::text() const {
  const XXH128_hash_t value = XXH3_128bits_digest(&state_->value);
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(value.high64),
                static_cast<unsigned long long>(value.low64));
  return text;
}

}  // namespace fem
