// Says what an image shows: `app PARAMS`. The image is drawn here; yours comes from a file or a camera.
#include <stripes.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(ep_status status) {
    if (status != EP_OK) {
        throw std::runtime_error(ep_status_string(status));
    }
}

// The code and the params, which threads share. Sessions end before their model does.
class Model {
  public:
    explicit Model(const char *params) {
        check(stripes_open(params, &model_));
    }
    ~Model() {
        ep_model_close(&model_);
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    const ep_model *get() const {
        return &model_;
    }

  private:
    ep_model model_;
};

// Memory and threads of one caller; nothing is allocated after this.
class Session {
  public:
    explicit Session(const Model &model) {
        ep_session *made = nullptr;
        check(ep_session_create(model.get(), nullptr, &made));
        session_.reset(made);
    }

    std::array<float, STRIPES_OUTPUT_CLASSES_ELEMENTS> run(const std::vector<float> &image) {
        std::array<float, STRIPES_OUTPUT_CLASSES_ELEMENTS> classes{};
        if (image.size() != STRIPES_INPUT_IMAGE_ELEMENTS) {
            throw std::invalid_argument("the image has another size");
        }
        check(stripes_run(session_.get(), image.data(), classes.data()));
        return classes;
    }

  private:
    std::unique_ptr<ep_session, void (*)(ep_session *)> session_{nullptr, ep_session_destroy};
};

// Red, green and blue, one plane after the other, from 0 to 1: stripes of four pixels.
std::vector<float> vertical_stripes() {
    constexpr std::array<std::size_t, 4> shape = STRIPES_INPUT_IMAGE_SHAPE;
    std::vector<float> image(STRIPES_INPUT_IMAGE_ELEMENTS);
    for (std::size_t i = 0; i < image.size(); i++) {
        image[i] = i % shape[3] / 4 % 2 == 0 ? 0.2F : 0.8F;
    }
    return image;
}

} // namespace

int main(int argc, char **argv) {
    constexpr std::array<const char *, STRIPES_OUTPUT_CLASSES_ELEMENTS> names = {"plain", "horizontal",
                                                                                 "vertical"};
    try {
        const Model model(argc > 1 ? argv[1] : STRIPES_PARAMS_FILE);
        Session session(model);
        const auto classes = session.run(vertical_stripes());
        const auto best = std::max_element(classes.begin(), classes.end()) - classes.begin();
        std::printf("%s (%.3f)\n", names[static_cast<std::size_t>(best)],
                    static_cast<double>(classes[static_cast<std::size_t>(best)]));
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
