// What a trained classifier of pictures is worth, and what it says of others.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/classification.h"
#include "io/jsonl.h"
#include "tasks/images/data.h"

namespace fem {

// A classifier as it lies in a folder, and the pictures it was trained on if the folder is of a run.
struct TrainedClassifier {
  ImageClassifier model;
  std::filesystem::path folder;
  ImageDataOptions data;
};
// place: a run, of which the best checkpoint is taken, or a model folder. pictures: another folder than the run's.
TrainedClassifier load_trained_classifier(const std::filesystem::path& place, const std::filesystem::path& pictures);

// The pictures it is measured on, of classes that it knows.
ImageSet images_for(const TrainedClassifier& trained, const std::function<void(int64_t, int64_t)>& on_picture = {});

// A line for every class: pictures, how many of them were found, and what they were most often taken for instead.
std::string class_table(const ClassificationScore& score, const std::vector<std::string>& classes);
Json score_document(const ClassificationScore& score, const std::vector<std::string>& classes);

// A picture, and its likeliest classes with their probabilities, the likeliest first.
struct Classified {
  std::filesystem::path file;
  at::Tensor pixels;  // [C, H, W] uint8, as the model saw it
  std::vector<std::pair<std::string, double>> top;
};

// Files, and the pictures in folders. All are read before the first answer. note: told what was scaled or converted.
std::vector<Classified> classify_files(TrainedClassifier& trained, const std::vector<std::string>& files, int64_t top,
                                       const std::function<void(const std::string&)>& note);

// A line for every picture: file, and class and probability by turns.
void write_classified(std::ostream& out, const std::vector<Classified>& pictures);

// What scripts/plot_classes.py draws.
Json picture_document(const std::vector<Classified>& pictures);

}  // namespace fem
