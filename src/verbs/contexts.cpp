#include "verbs/contexts.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "verbs/common.hpp"
#include "verbs/instance.hpp"

namespace feroce::verbs {
namespace {

void queue_port_event(Context& context, ibv_event_type type) {
    ibv_async_event event{};
    event.element.port_num = 1;
    event.event_type = type;
    context.events.post(event, nullptr);
}

void refresh(Context& context, const std::vector<host::Interface>& interfaces) {
    const auto found =
        std::find_if(interfaces.begin(), interfaces.end(), [&context](const host::Interface& i) {
            return i.index == context.device->interface_index;
        });
    const bool up = found != interfaces.end() && found->up;
    if (context.gids.update(found != interfaces.end() ? found->gids : std::vector<Gid>()))
        queue_port_event(context, IBV_EVENT_GID_CHANGE);
    if (up != context.port_up)
        queue_port_event(context, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    context.port_up = up;
}

}  // namespace

void add_context(Context& context) {
    Instance& all = Instance::get();
    const std::lock_guard lock(all.mutex);
    all.contexts.push_back(&context);
}

void remove_context(Context& context) {
    Instance& all = Instance::get();
    const std::lock_guard lock(all.mutex);
    std::erase(all.contexts, &context);
}

Device* device_of_fd(int fd) {
    struct stat wanted {};
    if (::fstat(fd, &wanted) != 0) return nullptr;
    Instance& all = Instance::get();
    const std::lock_guard lock(all.mutex);
    for (Context* context : all.contexts) {
        struct stat own {};
        if (::fstat(context->base.context.cmd_fd, &own) == 0 && own.st_ino == wanted.st_ino &&
            own.st_dev == wanted.st_dev)
            return context->device;
    }
    return nullptr;
}

void refresh_contexts(Instance& instance) {
    const std::lock_guard lock(instance.mutex);
    if (instance.contexts.empty()) return;
    const std::vector<host::Interface> interfaces = instance.host().interfaces();
    for (Context* context : instance.contexts) refresh(*context, interfaces);
}

void tell_contexts(Instance& instance, ibv_event_type type) {
    const std::lock_guard lock(instance.mutex);
    for (Context* context : instance.contexts) queue_port_event(*context, type);
}

std::optional<host::Interface> interface_of(process::Process& process, const Device& device) {
    for (host::Interface& interface : process.host().interfaces())
        if (interface.index == device.interface_index) return std::move(interface);
    return std::nullopt;
}

}  // namespace feroce::verbs
