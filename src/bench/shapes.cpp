#include "bench/shapes.h"

#include "util/check.h"

namespace fem::bench {

Shape shape_named(const std::string& name) {
  static const std::vector<Shape> shapes{
      {"S1", 768, 12, 1024, 2},  {"S2", 512, 4, 2048, 1},    {"S3", 512, 4, 4096, 1},   {"S4", 512, 4, 8192, 1},
      {"N128", 128, 4, 256, 16}, {"N256", 256, 4, 256, 16},  {"N512", 512, 8, 256, 16}, {"D1", 768, 12, 4096, 1},
      {"D8", 768, 12, 4096, 8},  {"D32", 768, 12, 4096, 32}, {"tiny", 32, 2, 48, 2}};
  for (const Shape& shape : shapes)
    if (shape.name == name) return shape;
  FEM_CHECK(false, "bench: expected --shapes out of S1, S2, S3, S4, N128, N256, N512 (decode: D1, D8, D32), got '",
            name, "'");
}

std::vector<Shape> shapes_named(const std::vector<std::string>& names) {
  std::vector<Shape> shapes;
  for (const std::string& name : names) shapes.push_back(shape_named(name));
  return shapes;
}

}  // namespace fem::bench
