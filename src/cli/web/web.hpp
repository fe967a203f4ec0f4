// `feroce web`: the page.
#pragma once

#include <string>

namespace feroce::cli {

struct WebOptions {
    std::string listen = "8791";  // [ADDRESS:]PORT
    std::string capture;          // A pcapng file whose packets are shown; empty: none.
};

int web(const WebOptions& options);  // The exit status.

}  // namespace feroce::cli
