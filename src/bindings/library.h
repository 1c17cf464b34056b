#pragma once

#include <torch/library.h>

namespace fem {

void register_state(torch::Library& library);
void register_mixer(torch::Library& library);
void register_backbone(torch::Library& library);
void register_energy(torch::Library& library);
void register_files(torch::Library& library);
void register_forecaster(torch::Library& library);
void register_image_classifier(torch::Library& library);
void register_text(torch::Library& library);
void register_generation(torch::Library& library);
void register_scoring(torch::Library& library);

}  // namespace fem
