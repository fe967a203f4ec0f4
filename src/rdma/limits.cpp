#include "feroce/limits.hpp"

#include <utility>

namespace feroce::rdma {

// Hands a stop of one of two tokens on to a source of its own.
struct Limits::Either {
    struct Forward {
        std::stop_source* to;
        void operator()() const { to->request_stop(); }
    };

    Either(std::shared_ptr<Either> older, const std::stop_token& one, const std::stop_token& other)
        : before(std::move(older)), first(one, Forward{&source}), second(other, Forward{&source}) {}

    std::shared_ptr<Either> before;  // May be what stops the first one.
    std::stop_source source;
    std::stop_callback<Forward> first, second;
};

void Limits::add(const std::stop_token& token) {
    if (!token.stop_possible() || token == stop_) return;
    if (!stop_.stop_possible()) {
        stop_ = token;
        return;
    }
    either_ = std::make_shared<Either>(either_, stop_, token);
    stop_ = either_->source.get_token();
}

}  // namespace feroce::rdma
