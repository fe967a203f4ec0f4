#include "cli/web/web.hpp"

#include "cli/http/http_server.hpp"
#include "cli/web/site.hpp"

namespace feroce::cli {

int web(const WebOptions& options) {
    WebSite site(options);
    const HttpPlace place{.command = "web",
                          .listen = options.listen,
                          .loopback_only = true,
                          .hosts = {},
                          .host_advice = "; use 127.0.0.1 or localhost",
                          .said = "page at",
                          .path = "/"};
    return serve_http(place, site);
}

}  // namespace feroce::cli
