#include "cli/http/http_library.hpp"

#include <dlfcn.h>

namespace feroce::cli {
namespace {

constexpr char kName[] = "libmicrohttpd.so.12";  // Of the headers that this is compiled with.

template <class Function>
bool find_function(void* library, const char* name, Function& out) {
    out = reinterpret_cast<Function>(::dlsym(library, name));
    return out != nullptr;
}

bool load_functions(HttpLibrary& out) {
    void* library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find_function(library, "MHD_start_daemon", out.start_daemon) &&
           find_function(library, "MHD_stop_daemon", out.stop_daemon) &&
           find_function(library, "MHD_create_response_from_buffer_with_free_callback_cls",
                         out.create_response) &&
           find_function(library, "MHD_destroy_response", out.destroy_response) &&
           find_function(library, "MHD_add_response_header", out.add_header) &&
           find_function(library, "MHD_queue_response", out.queue_response) &&
           find_function(library, "MHD_lookup_connection_value", out.lookup_value) &&
           find_function(library, "MHD_get_connection_info", out.connection_info);
}

}  // namespace

const HttpLibrary* http_library() {
    static HttpLibrary functions;
    static const bool loaded = load_functions(functions);
    return loaded ? &functions : nullptr;
}

}  // namespace feroce::cli
