#include "rdma/words.hpp"

#include <dlfcn.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace feroce::rdma {

int errno_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_SUCCESS:
            return 0;
        case IBV_WC_LOC_LEN_ERR:
            return EMSGSIZE;
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            return EFAULT;
        case IBV_WC_LOC_QP_OP_ERR:
            return EINVAL;
        case IBV_WC_WR_FLUSH_ERR:
            return ECONNABORTED;
        case IBV_WC_REM_ACCESS_ERR:
            return EACCES;
        case IBV_WC_REM_INV_REQ_ERR:
            return EPROTO;
        case IBV_WC_REM_OP_ERR:
            return EREMOTEIO;
        case IBV_WC_RETRY_EXC_ERR:
            return EHOSTUNREACH;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return EBUSY;
        default:
            return EIO;
    }
}

std::string meaning_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
            return "a message was longer than the receive posted for it; post larger receives";
        case IBV_WC_LOC_PROT_ERR:
            return "a local region is not registered for this, or was deregistered; keep its "
                   "registration until the operation is done";
        case IBV_WC_WR_FLUSH_ERR:
            return "the connection closed before the operation was done";
        case IBV_WC_REM_ACCESS_ERR:
            return "the peer refused access: the key is not good for that address, length or "
                   "operation; check what the peer registered, with which access, and that it "
                   "still is";
        case IBV_WC_REM_INV_REQ_ERR:
            return "the peer refused the request: too long for its receive, misaligned, or of a "
                   "kind it does not serve";
        case IBV_WC_REM_OP_ERR:
            return "the peer could not carry out the request";
        case IBV_WC_RETRY_EXC_ERR:
            return "the peer does not answer: it ended, or the network does not reach it";
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return "the peer has no receive posted; post receives before the other end sends";
        default:
            return std::string("the device says: ") + ::ibv_wc_status_str(status);
    }
}

std::string meaning_of_rejection(int reason) {
    switch (reason) {  // IBTA's numbers.
        case 8:
            return "nobody listens there; is the server running, on that address and port?";
        case 10:
            return "the peer still knows an old connection of the same numbers; try again";
        case 28:
            return "the program there refused it";
        default:
            return "it refused with reason " + std::to_string(reason);
    }
}

std::string explain(ibv_qp* qp) {
    // Looked up and not linked: other devices' libraries have no such function.
    using Explain = std::size_t (*)(ibv_qp*, char*, std::size_t);
    static const auto function = reinterpret_cast<Explain>(::dlsym(RTLD_DEFAULT, "feroce_explain"));
    if (function == nullptr || qp == nullptr) return {};
    std::array<char, 1024> text{};
    const std::size_t length = function(qp, text.data(), text.size());
    return std::string(text.data(), length);
}

}  // namespace feroce::rdma
