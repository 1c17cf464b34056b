#include "tasks/images/report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <ostream>

#include "data/csv.h"
#include "data/picture.h"
#include "fem/io/model_folder.h"
#include "models/pixels.h"
#include "tasks/images/task.h"
#include "tasks/trained_model.h"
#include "util/check.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> counts_of(const at::Tensor& row) {
  const at::Tensor flat = row.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

std::vector<fs::path> pictures_in(const std::vector<std::string>& arguments) {
  std::vector<fs::path> files;
  for (const std::string& argument : arguments) {
    std::error_code none;
    if (!fs::is_directory(argument, none)) {
      files.emplace_back(argument);
      continue;
    }
    const std::vector<fs::path> found = picture_files(argument);
    FEM_CHECK(!found.empty(), "classify: the folder ", argument, " has no .png, .jpg or .jpeg file");
    files.insert(files.end(), found.begin(), found.end());
  }
  FEM_CHECK(!files.empty(), "classify: expected pictures, or folders of them");
  return files;
}

}  // namespace

TrainedClassifier load_trained_classifier(const fs::path& place, const fs::path& pictures) {
  const TrainedFolder found = trained_folder(place, images_entry().name);
  TrainedClassifier trained{load_image_classifier(found.folder), found.folder, {}};
  if (found.recipe.is_object()) trained.data = image_options_from_json(found.recipe).data;
  std::error_code none;
  if (!pictures.empty() && fs::weakly_canonical(pictures, none) != fs::weakly_canonical(trained.data.folder, none)) {
    const ImageClassifierOptions& model = trained.model->options;
    trained.data = {
        .folder = pictures, .size = model.height == model.width ? model.height : 0, .channels = model.channels};
  }
  return trained;
}

ImageSet images_for(const TrainedClassifier& trained, const std::function<void(int64_t, int64_t)>& on_picture) {
  const ImageClassifierOptions& model = trained.model->options;
  FEM_CHECK(!trained.data.folder.empty(), "classify: ", trained.folder.string(),
            " is a model without its run: name the pictures with --data");
  ImageSet set = images_of(trained.data, on_picture);
  FEM_CHECK(set.train.pixels.size(1) == model.channels && set.train.pixels.size(2) == model.height &&
                set.train.pixels.size(3) == model.width,
            "classify: the model is for pictures of ", model.width, " x ", model.height, " pixels in ",
            model.channels == 1 ? "grey" : "colour", ", those in ", trained.data.folder.string(), " have ",
            size_text(set.train.pixels));
  // IDX files have numbers for names.
  const bool numbered = set.classes.front() == "0" && set.classes.size() <= model.classes.size();
  FEM_CHECK(set.classes == model.classes || numbered, "classify: the classes in ", trained.data.folder.string(),
            " are not those of the model, ", model.classes.front(), ", ..., ", model.classes.back());
  set.classes = model.classes;
  return set;
}

std::string class_table(const ClassificationScore& score, const std::vector<std::string>& classes) {
  Table table({"class", "pictures", "found", "right of said", "else mostly"});
  const at::Tensor said = score.confusion.sum(0);
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    std::vector<int64_t> row = counts_of(score.confusion[place]);
    int64_t all = 0;
    for (const int64_t count : row) all += count;
    const auto share = [](int64_t part, int64_t of) {
      return of > 0 ? fixed(100.0 * static_cast<double>(part) / static_cast<double>(of), 1) + " %" : std::string("-");
    };
    const int64_t found = row[i];
    row[i] = 0;
    const auto most = std::max_element(row.begin(), row.end());
    table.add({classes[i], grouped(all), share(found, all), share(found, said[place].item<int64_t>()),
               *most > 0 ? classes[static_cast<size_t>(most - row.begin())] : "-"});
  }
  return table.str();
}

Json score_document(const ClassificationScore& score, const std::vector<std::string>& classes) {
  Json out{{"pictures", score.pictures()},
           {"accuracy", score.accuracy()},
           {"loss", score.loss()},
           {"classes", classes},
           {"confusion", Json::array()}};
  for (int64_t i = 0; i < score.confusion.size(0); ++i) out["confusion"].push_back(counts_of(score.confusion[i]));
  return out;
}

std::vector<Classified> classify_files(TrainedClassifier& trained, const std::vector<std::string>& files, int64_t top,
                                       const std::function<void(const std::string&)>& note) {
  const ImageClassifierOptions& model = trained.model->options;
  FEM_CHECK(top >= 1, "classify: expected --top of at least 1, got ", top);
  std::vector<Classified> found;
  for (const fs::path& file : pictures_in(files)) {
    const at::Tensor read = read_picture(file);
    const at::Tensor seen = picture_for(model, read);
    if (read.sizes() != seen.sizes()) note(file.string() + ": " + size_text(read) + ", taken as " + size_text(seen));
    found.push_back({file, seen, {}});
  }
  for (Classified& picture : found) {
    const at::Tensor probabilities = trained.model->predict(picture.pixels.unsqueeze(0))[0];
    const auto [values, places] = probabilities.topk(std::min<int64_t>(top, probabilities.numel()));
    for (int64_t i = 0; i < values.numel(); ++i)
      picture.top.emplace_back(model.classes[static_cast<size_t>(places[i].item<int64_t>())], values[i].item<double>());
  }
  return found;
}

void write_classified(std::ostream& out, const std::vector<Classified>& pictures) {
  out << "file";
  for (size_t i = 1; i <= pictures.front().top.size(); ++i) out << ",class " << i << ",probability " << i;
  out << '\n';
  for (const Classified& picture : pictures) {
    out << csv_cell(picture.file.string());
    for (const auto& [name, probability] : picture.top) out << ',' << csv_cell(name) << ',' << fixed(probability, 4);
    out << '\n';
  }
}

Json picture_document(const std::vector<Classified>& pictures) {
  constexpr size_t kMost = 12;
  Json out{{"pictures", Json::array()}, {"more", pictures.size() - std::min(pictures.size(), kMost)}};
  for (size_t i = 0; i < std::min(pictures.size(), kMost); ++i) {
    const Classified& picture = pictures[i];
    Json one{{"file", picture.file.filename().string()}, {"top", picture.top}, {"channels", Json::array()}};
    for (const at::Tensor& channel : picture.pixels.to(at::kLong).unbind(0)) {
      Json rows = Json::array();
      for (const at::Tensor& row : channel.unbind(0)) rows.push_back(counts_of(row));
      one["channels"].push_back(std::move(rows));
    }
    out["pictures"].push_back(std::move(one));
  }
  return out;
}

}  // namespace fem
