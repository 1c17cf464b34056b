#include <ATen/ATen.h>

#include "data/picture.h"
#include "inspect/subject.h"
#include "models/pixels.h"
#include "tasks/images/report.h"
#include "util/check.h"

namespace fem {
namespace {

class PictureSubject final : public Subject {
 public:
  PictureSubject(const SubjectOptions& options, const std::filesystem::path& pictures)
      : model_name_(options.model.string()),
        trained_(load_trained_classifier(options.model, std::filesystem::is_directory(pictures) ? pictures : "")) {
    trained_.model = to_look_at(trained_.model, trained_.model->options, options.fresh);
    if (pictures.empty() || std::filesystem::is_directory(pictures)) {
      const LabelledImages all = image_data(trained_.data, images_for(trained_)).test;
      images_ = all.at(at::tensor(spread(all.count(), options.rows), at::kLong));
      name_ = trained_.data.folder.string();
    } else {
      images_.pixels = picture_for(trained_.model->options, read_picture(pictures)).unsqueeze(0);
      name_ = pictures.filename().string();
    }
  }

  const BackboneOptions& options() const override { return trained_.model->options; }
  torch::nn::Module& model() override { return *trained_.model; }
  int64_t batches() const override { return images_.pixels.size(0); }
  const char* unit_of_loss() const override { return "nats a picture"; }

  Trace trace(int64_t batch) override { return trained_.model->trace(picture(batch)); }

  SummedLoss loss(int64_t batch) override {
    FEM_CHECK(images_.labels.defined(), "inspect: a picture alone has no class to compare with; name a folder of them");
    const at::Tensor label = images_.labels.slice(0, batch, batch + 1);
    return {at::cross_entropy_loss(trained_.model(picture(batch)), label).item<double>(), 1};
  }

  Shown shown() override {
    const ImageClassifierOptions& model = trained_.model->options;
    const int64_t rows = model.height / model.patch, columns = model.width / model.patch;
    Shown shown{.trace = trace(0), .kind = "image", .title = model_name_ + ", " + name_};
    shown.tokens.push_back("class");
    for (int64_t i = 0; i < rows * columns; ++i)
      shown.tokens.push_back("row " + std::to_string(i / columns + 1) + ", column " + std::to_string(i % columns + 1));
    shown.grid = {{"rows", rows}, {"columns", columns}, {"first", 1}};
    shown.picture = with_channels(images_.pixels[0], 3).permute({1, 2, 0}).contiguous();
    return shown;
  }

 private:
  at::Tensor picture(int64_t batch) const {
    return trained_.model->standardised(images_.pixels.slice(0, batch, batch + 1));
  }

  std::string model_name_, name_;  // of the model and of what is shown
  TrainedClassifier trained_;
  LabelledImages images_;
};

}  // namespace

std::unique_ptr<Subject> picture_subject(const SubjectOptions& options, const std::filesystem::path& pictures) {
  return std::make_unique<PictureSubject>(options, pictures);
}

}  // namespace fem
