// XRC domains. A domain may be shared through a file: whoever opens it with the same file gets the
// same domain, within this process.
#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "verbs/common.hpp"
#include "verbs/graveyard.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

struct SharedDomain {
    std::uint32_t domain = 0;
    std::uint32_t opens = 0;
};

struct SharedDomains {
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, std::uint64_t>, SharedDomain> by_file;
};

SharedDomains& shared_domains() {
    static auto& leaked = *new SharedDomains;
    return leaked;
}

Result<std::uint32_t> open_shared(process::Process& process, Xrcd& xrcd, int flags) {
    struct stat about {};
    if (::fstat(xrcd.fd, &about) != 0) return Error{EBADF, "no such file descriptor"};
    xrcd.filesystem = about.st_dev;
    xrcd.inode = about.st_ino;
    SharedDomains& shared = shared_domains();
    const std::lock_guard lock(shared.mutex);
    const auto key = std::pair(xrcd.filesystem, xrcd.inode);
    const auto found = shared.by_file.find(key);
    if (found == shared.by_file.end() && (flags & O_CREAT) == 0)
        return Error{ENOENT, "the file names no domain yet"};
    if (found != shared.by_file.end() && (flags & O_EXCL) != 0)
        return Error{EINVAL, "the file names a domain already"};
    SharedDomain& domain = shared.by_file[key];
    if (domain.opens++ == 0) domain.domain = process.xrc().create();
    return domain.domain;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
    const Uncancelled call;
    constexpr std::uint32_t kNeeds = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (!alive(context)) return refuse_null("ibv_open_xrcd", kDead);
    if (attributes->comp_mask != kNeeds || (attributes->oflags & ~(O_CREAT | O_EXCL)) != 0)
        return refuse_null("ibv_open_xrcd", {EINVAL, "fd and oflags (O_CREAT, O_EXCL) are needed"});
    auto xrcd = std::make_unique<Xrcd>();
    xrcd->base.context = context;
    xrcd->fd = attributes->fd;
    if (attributes->fd == -1) {
        xrcd->domain = process_of(context).xrc().create();
    } else {
        const Result<std::uint32_t> domain =
            open_shared(process_of(context), *xrcd, attributes->oflags);
        if (!domain) return refuse_null("ibv_open_xrcd", domain.error());
        xrcd->domain = *domain;
    }
    context_of(context).objects.fetch_add(1);
    return &xrcd.release()->base;
}

int close_xrcd(ibv_xrcd* base) {
    const Uncancelled call;
    if (!alive(base->context)) return refuse("ibv_close_xrcd", kDead);
    Xrcd& xrcd = object_of<Xrcd>(base);
    SharedDomains& shared = shared_domains();
    const std::lock_guard lock(shared.mutex);
    const auto found = shared.by_file.find(std::pair(xrcd.filesystem, xrcd.inode));
    const bool last = xrcd.fd == -1 || found->second.opens == 1;
    if (last) {
        Result<void> destroyed = process_of(base->context).xrc().destroy(xrcd.domain);
        if (!destroyed) return refuse("ibv_close_xrcd", destroyed.error());
    }
    if (xrcd.fd != -1 && --found->second.opens == 0) shared.by_file.erase(found);
    context_of(base->context).objects.fetch_sub(1);
    bury(xrcd, base->context);
    return 0;
}

}  // namespace feroce::verbs
