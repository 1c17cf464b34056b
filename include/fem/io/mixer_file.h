#pragma once

#include <filesystem>

#include "fem/mixer.h"

namespace fem {

// A mixer in one .safetensors file: its parameters under the authors' names, its options as JSON in the metadata.
// C++ and Python write and read the same file.
void save_mixer(const std::filesystem::path& path, const FreeEnergyMixer& mixer);

FreeEnergyMixer load_mixer(const std::filesystem::path& path);

}  // namespace fem
