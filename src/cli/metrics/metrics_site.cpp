#include "cli/metrics/metrics_site.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>

#include "cli/http/http_server.hpp"

namespace feroce::cli {
namespace {

using Clock = std::chrono::steady_clock;

// One look at the processes answers all requests of this time: asking often costs them nothing.
constexpr std::chrono::milliseconds kLookLasts{250};

class MetricsSite final : public HttpSite {
public:
    explicit MetricsSite(const MetricsOptions& options) : collector_(options) {}
    HttpReply answer(const HttpRequest& request) override;

private:
    std::shared_ptr<const std::string> text(Exposition exposition);

    Collector collector_;
    Clock::time_point looked_;
    std::vector<Family> families_;
    // By Exposition; null if not asked for since the look.
    std::array<std::shared_ptr<const std::string>, 2> texts_;
};

std::shared_ptr<const std::string> MetricsSite::text(Exposition exposition) {
    if (families_.empty() || Clock::now() - looked_ >= kLookLasts) {
        texts_ = {};
        families_ = collector_.families();
        looked_ = Clock::now();
    }
    auto& text = texts_[static_cast<std::size_t>(exposition)];
    if (text == nullptr) text = std::make_shared<const std::string>(render(families_, exposition));
    return text;
}

HttpReply MetricsSite::answer(const HttpRequest& request) {
    if (request.path() != "/metrics") return refuse_request(404, "there is only /metrics");
    const bool open =
        request.header("Accept").find("application/openmetrics-text") != std::string_view::npos;
    const Exposition exposition = open ? Exposition::OpenMetrics : Exposition::Text;
    return {.type = std::string(content_type(exposition)), .body = text(exposition)};
}

}  // namespace

int serve_metrics(const MetricsOptions& options) {
    HttpPlace place{.command = "metrics",
                    .listen = options.listen,
                    .hosts = options.hosts,
                    .host_advice = "; --host allows a further name",
                    .said = "metrics at",
                    .path = "/metrics"};
    char name[HOST_NAME_MAX + 1] = "";
    if (::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0')
        place.hosts.emplace_back(name);
    MetricsSite site(options);
    return serve_http(place, site);
}

}  // namespace feroce::cli
