// What `feroce web` answers: its page, and the document that the page asks for every second.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cli/http/http_server.hpp"
#include "cli/top/sample.hpp"
#include "cli/web/web.hpp"

namespace feroce::cli {

class WebSite final : public HttpSite {
public:
    explicit WebSite(const WebOptions& options);
    HttpReply answer(const HttpRequest& request) override;

private:
    using Clock = std::chrono::steady_clock;

    HttpReply answer_path(std::string_view path);
    std::shared_ptr<const std::string> document();

    std::string capture_;                         // The file.
    std::shared_ptr<const std::string> ladders_;  // Of it; null: none.
    std::string machine_;
    std::string user_;
    std::uint32_t user_number_;
    Sampler sampler_;
    Clock::time_point looked_{};
    std::shared_ptr<const std::string> document_;  // Of the last look.
};

}  // namespace feroce::cli
