#include "bindings/library.h"

namespace fem {

// Schemas name the class of states: it comes first.
TORCH_LIBRARY_FRAGMENT(fem, m) {
  register_state(m);
  register_mixer(m);
  register_backbone(m);
  register_energy(m);
  register_files(m);
  register_forecaster(m);
  register_image_classifier(m);
  register_text(m);
  register_generation(m);
  register_scoring(m);
}

}  // namespace fem
