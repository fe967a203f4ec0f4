// `feroce trace FILE.pcapng`: the RoCE packets of a capture, one readable line each.
#pragma once

#include <string>

namespace feroce::cli {

int trace(const std::string& path);

}  // namespace feroce::cli
