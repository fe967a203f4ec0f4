#include "cli/web/site.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "cli/explain.hpp"
#include "cli/top/watcher.hpp"
#include "cli/web/document.hpp"
#include "cli/web/gate.hpp"
#include "cli/web/ladder.hpp"
#include "cli/web/page_files.hpp"

namespace feroce::cli {
namespace {

// Several pages share a look, and asking without a pause costs the programs nothing.
constexpr std::chrono::milliseconds kPageLookLasts{700};
// Nobody looked for so long: a rate over that time says nothing of now.
constexpr std::chrono::seconds kRatesLast{10};

// The page uses nothing but its own files. What leads to it, frames it or embeds it gets nothing.
constexpr std::array<std::pair<const char*, const char*>, 7> kHeaders{{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
     "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
}};

std::string machine_name() {
    char name[HOST_NAME_MAX + 1] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string user_name(std::uint32_t user) {
    const passwd* entry = ::getpwuid(user);
    return entry != nullptr ? entry->pw_name : fmt::format("{}", user);
}

HttpReply json_reply(std::shared_ptr<const std::string> text) {
    return {.type = "application/json", .body = std::move(text)};
}

}  // namespace

WebSite::WebSite(const WebOptions& options)
    : capture_(options.capture),
      machine_(machine_name()),
      user_(user_name(::geteuid())),
      user_number_(::geteuid()) {
    if (!capture_.empty())
        ladders_ = std::make_shared<const std::string>(ladders_in(capture_).dump());
}

HttpReply WebSite::answer(const HttpRequest& request) {
    std::string refusal = refusal_of_origin(request);
    if (refusal.empty()) refusal = refusal_of_user(user_of_client(request), user_number_, user_);
    HttpReply reply = refusal.empty() ? answer_path(request.path()) : refuse_request(403, refusal);
    reply.headers.assign(kHeaders.begin(), kHeaders.end());
    return reply;
}

HttpReply WebSite::answer_path(std::string_view path) {
    if (path == "/state.json") return json_reply(document());
    if (path == "/capture.json" && ladders_ != nullptr) return json_reply(ladders_);
    for (const PageFile& file : page_files())
        if (file.path == path)
            return {.type = std::string(file.type),
                    .body = std::make_shared<const std::string>(file.text)};
    return refuse_request(404, "there is no such page");
}

std::shared_ptr<const std::string> WebSite::document() {
    const Clock::duration age = Clock::now() - looked_;
    if (document_ != nullptr && age < kPageLookLasts) return document_;
    if (age > kRatesLast) sampler_ = Sampler();
    const TopLook look = look_around();
    WebFacts facts;
    facts.sample = sampler_.take(look);
    facts.failures = explanations(look.processes, std::nullopt);
    facts.unknown = explanation_gap(std::nullopt);
    facts.machine = machine_;
    facts.user = user_;
    facts.capture = capture_;
    // A path or a command may be any bytes.
    document_ = std::make_shared<const std::string>(
        document_of(std::move(facts)).dump(-1, ' ', false, Json::error_handler_t::replace));
    looked_ = Clock::now();
    return document_;
}

}  // namespace feroce::cli
