// Runs the mini model from C++.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <mini.h>

int main(int argc, char **argv) {
    ep_model model;
    ep_session *session = nullptr;
    std::vector<float> x(MINI_INPUT_DATA_ELEMENTS, 1.0f), y(MINI_OUTPUT_DATA_ELEMENTS);
    std::vector<std::int8_t> small(MINI_INPUT_SMALL_NUMBERS_ELEMENTS, 1);
    std::vector<std::uint16_t> halves(MINI_OUTPUT_HALVES_ELEMENTS);
    std::vector<std::uint8_t> flags(MINI_OUTPUT_INT_ELEMENTS);
    std::vector<std::int64_t> longs(MINI_OUTPUT_X_ELEMENTS);
    ep_options options = EP_OPTIONS_INIT;
    options.threads = 2;
    ep_status status = argc > 1 ? mini_open(argv[1], &model) : EP_E_NULL;
    if (status == EP_OK) {
        status = ep_session_create(&model, &options, &session);
    }
    if (status == EP_OK) {
        status =
            mini_run(session, x.data(), small.data(), y.data(), halves.data(), flags.data(), longs.data());
    }
    ep_session_destroy(session);
    if (status != EP_OK) {
        std::puts(ep_status_string(status));
        return 1;
    }
    ep_model_close(&model);
    std::printf("%d %lld\n", flags[0], static_cast<long long>(longs[7]));
    return flags[0] == 1 && longs[7] == 1 ? 0 : 1;
}
