// The calls element by element between codes.
#include <algorithm>
#include <vector>

#include "call.hpp"
#include "integer_calls.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

Shape one_of(const View& view) {
    Shape one = view.shape;
    std::fill(one.size, one.size + one.ndim, 1);
    return one;
}

void run_between(Kernel kernel, Call& call, int threads) {
    if (call.is_empty()) return;
    std::vector<Partial> partials(
        static_cast<std::size_t>(useful_threads(call.plan().count, threads)));
    run(kernel, call.job(), partials);
}

}  // namespace

void between(const Between& between, const View& out, const View& a, const View& b, int threads) {
    Call call({&out, &a, &b}, one_of(out), 1);
    call.job().between = &between;
    run_between(kernels().between, call, threads);
}

void requantize(const Between& between, const View& out, const View& codes, int threads) {
    Call call({&out, &codes}, one_of(out), 1);
    call.job().between = &between;
    run_between(kernels().requantize, call, threads);
}

void look_up(const View& out, const View& codes, const std::uint8_t* table, const Shape& rows,
             int threads) {
    Call call({&out, &codes}, rows, 1);
    call.job().table = table;
    run_between(kernels().look_up, call, threads);
}

}  // namespace halfstep
