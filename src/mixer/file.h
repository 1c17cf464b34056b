#pragma once

#include <filesystem>
#include <vector>

#include "fem/mixer.h"

namespace fem {

// What save_mixer writes; parameters in the order of mixer_parameters(options).
struct MixerFile {
  MixerOptions options;
  std::vector<at::Tensor> parameters;
};

void write_mixer_file(const std::filesystem::path& path, const MixerFile& file);
MixerFile read_mixer_file(const std::filesystem::path& path);

}  // namespace fem
