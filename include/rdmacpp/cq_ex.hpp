// SPDX-License-Identifier: MIT
/// @file
/// Extended completion queues: completions read field by field where they are, with more to tell than an ibv_wc.
#pragma once

#include "config.hpp"
#if __cplusplus >= 202002L && !defined(RDMACPP_TWO_VERSIONS) // otherwise config.hpp says what to do

#include "cq.hpp"
#include "pd.hpp"

#include <cstdint>
#include <iterator>
#include <new>

namespace rdma::inline RDMACPP_ABI {

/// What an extended CQ is asked for (ibv_cq_init_attr_ex). It is only read.
struct cq_init_attr_ex {
    std::uint32_t cqe = 16;        ///< completions that it must hold
    comp_channel_ref channel = {}; ///< Where it reports when it was armed; none: it can only be polled.
    std::uint64_t wc_flags = IBV_WC_STANDARD_FLAGS; ///< Of ibv_create_cq_wc_flags: what can be read of a completion.
    std::uint32_t flags = 0;                        ///< Of ibv_create_cq_attr_flags.
    pd_ref parent_domain = {};                      ///< A parent_domain; none: any thread may use it.
    void* user_context = nullptr;                   ///< Found again in its events.
    std::uint32_t comp_vector = 0;                  ///< Which interrupt of the device to use.
};

/// What is known of a work request that succeeded, read where an extended CQ stands; only polling::success gives one.
/// What the CQ was not made with (cq_init_attr_ex::wc_flags) cannot be read.
class completed_ex {
public:
    wc_opcode opcode() const noexcept { return static_cast<wc_opcode>(::ibv_wc_read_opcode(cq_)); }
    /// How many bytes were received, or read. Meaningless for a send or a write.
    std::uint32_t byte_len() const noexcept { return ::ibv_wc_read_byte_len(cq_); }
    /// The flags of ibv_wc_flags: IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_GRH...
    unsigned wc_flags() const noexcept { return ::ibv_wc_read_wc_flags(cq_); }
    /// The immediate data, in network byte order, if wc_flags tell that there is some.
    std::uint32_t imm_data() const noexcept { return ::ibv_wc_read_imm_data(cq_); }
    /// The key that the sender took back, if wc_flags tell so.
    std::uint32_t invalidated_rkey() const noexcept { return ::ibv_wc_read_invalidated_rkey(cq_); }
    /// The QP that sent it, and of the sender of a datagram on InfiniBand the LID, the service level and the path bits.
    std::uint32_t src_qp() const noexcept { return ::ibv_wc_read_src_qp(cq_); }
    std::uint32_t slid() const noexcept { return ::ibv_wc_read_slid(cq_); }
    std::uint8_t sl() const noexcept { return ::ibv_wc_read_sl(cq_); }
    std::uint8_t dlid_path_bits() const noexcept { return ::ibv_wc_read_dlid_path_bits(cq_); }
    /// When it completed, by the device's clock: device_queries::query_raw_clock.
    std::uint64_t completion_ts() const noexcept { return ::ibv_wc_read_completion_ts(cq_); }
    /// When it completed, in nanoseconds since 1970.
    std::uint64_t completion_wallclock_ns() const noexcept { return ::ibv_wc_read_completion_wallclock_ns(cq_); }
    /// The VLAN, the tag of the flow, and the tag that was matched: if the CQ was made with flags for them.
    std::uint16_t cvlan() const noexcept { return ::ibv_wc_read_cvlan(cq_); }
    std::uint32_t flow_tag() const noexcept { return ::ibv_wc_read_flow_tag(cq_); }
    ibv_wc_tm_info tm_info() const noexcept {
        ibv_wc_tm_info info{};
        ::ibv_wc_read_tm_info(cq_, &info);
        return info;
    }

private:
    friend class polling;
    explicit completed_ex(ibv_cq_ex* cq) noexcept : cq_(cq) {}
    ibv_cq_ex* cq_;
};

/// An extended CQ being polled: from ibv_start_poll, which this makes, to ibv_end_poll at the end of its scope, on
/// every path. It stands on one completion after the other: `for (auto& completion : cq.start_poll())
/// use(completion.wr_id());`
///
/// The driver may hold a lock meanwhile: one thread at a time, no wait in between, and no other poll of that CQ.
///
/// Soft-RoCE's driver of rdma-core 44, alone of all, has ended the poll when next() finds no more, and goes wrong when
/// it is then ended as C's manual asks for: there, break off at the last completion that is known to be there.
class [[nodiscard]] polling {
public:
    /// Begins. Precondition, asserted: the CQ is not empty.
    explicit polling(ibv_cq_ex* cq) noexcept : cq_(cq) {
        RDMACPP_ASSERT(cq);
        ibv_poll_cq_attr attr{};
        why_ = ::ibv_start_poll(cq_, &attr);
        started_ = why_ == 0;
    }
    polling(polling const&) = delete;
    polling& operator=(polling const&) = delete;
    ~polling() {
        if (started_)
            ::ibv_end_poll(cq_);
    }

    /// Whether it stands on a completion.
    explicit operator bool() const noexcept { return why_ == 0; }

    /// Steps to the next completion (ibv_next_poll), if there is one. Precondition, asserted: it stands on one.
    void next() noexcept {
        RDMACPP_ASSERT(*this);
        why_ = ::ibv_next_poll(cq_);
    }

    /// Why it stands on none: std::errc{} when there are no more, else the errno of C.
    std::errc error() const noexcept { return why_ == ENOENT ? std::errc{} : static_cast<std::errc>(why_); }

    /// @name The completion that it stands on.
    /// @{

    /// What the request was numbered.
    std::uint64_t wr_id() const noexcept { return standing()->wr_id; }
    /// Whether it succeeded, or why not.
    wc_status status() const noexcept { return static_cast<wc_status>(standing()->status); }
    /// The number of the QP that it was posted to, and the device's own code for a failure.
    std::uint32_t qp_num() const noexcept { return ::ibv_wc_read_qp_num(standing()); }
    std::uint32_t vendor_err() const noexcept { return ::ibv_wc_read_vendor_err(standing()); }
    /// The rest of it, valid until next(). Precondition, asserted: it succeeded.
    completed_ex success() const& noexcept {
        RDMACPP_ASSERT(status() == wc_status::success);
        return completed_ex(standing());
    }
    completed_ex success() const&& = delete;
    /// @}

    /// Steps over the completions; each is this object. An error ends it: error() tells.
    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = polling;
        using difference_type = std::ptrdiff_t;

        polling& operator*() const noexcept { return *at_; }
        iterator& operator++() noexcept {
            at_->next();
            return *this;
        }
        void operator++(int) noexcept { at_->next(); }
        friend bool operator==(iterator const& self, std::default_sentinel_t) noexcept { return !*self.at_; }

    private:
        friend class polling;
        explicit iterator(polling& at) noexcept : at_(&at) {}
        polling* at_;
    };
    iterator begin() noexcept { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    ibv_cq_ex* standing() const noexcept {
        RDMACPP_ASSERT(*this);
        return cq_;
    }

    ibv_cq_ex* cq_;
    int why_;      // 0, or why it stands on nothing
    bool started_; // there is something to end
};

/// An owned extended CQ (ibv_create_cq_ex). It is a cq, and serves wherever one does, but is polled through start_poll.
class [[nodiscard]] cq_ex : public cq {
public:
    /// Empty.
    cq_ex() noexcept = default;

#if RDMACPP_EXCEPTIONS
    /// Makes an extended CQ on a device.
    /// @throws rdma::error errc::not_bound for an empty context; EOPNOTSUPP where the device has none, or not with
    /// these flags
    cq_ex(context_ref context, cq_init_attr_ex const& attr) {
        std::error_code ec;
        *this = cq_ex(context, attr, ec);
        if (ec)
            detail::throw_error(ec, "ibv_create_cq_ex", {std::to_string(attr.cqe), " entries"});
    }
    /// Takes over an extended CQ that C made, or that release() gave back.
    /// @throws rdma::error errc::null_handle, errc::already_owned
    cq_ex(adopt_t, ibv_cq_ex* raw) : cq(adopt, raw ? ::ibv_cq_ex_to_cq(raw) : nullptr) {}
#endif
    /// The twin of the creating constructor: empty on failure.
    cq_ex(context_ref context, cq_init_attr_ex const& attr, std::error_code& ec) noexcept {
        ibv_cq_init_attr_ex c{};
        c.cqe = attr.cqe;
        c.cq_context = attr.user_context;
        c.channel = attr.channel.native_handle();
        c.comp_vector = attr.comp_vector;
        c.wc_flags = attr.wc_flags;
        c.flags = attr.flags;
        c.parent_domain = attr.parent_domain.native_handle();
        if (attr.flags)
            c.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
        if (attr.parent_domain)
            c.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
        auto* const node = fresh_node(static_cast<bool>(context), ec);
        if (!node)
            return;
        ibv_cq_ex* const made = ::ibv_create_cq_ex(context.native_handle(), &c);
        own(made ? ::ibv_cq_ex_to_cq(made) : nullptr, node,
            {detail::keeper(attr.channel), detail::keeper(context), detail::keeper(attr.parent_domain)}, ec);
        if (node_)
            node_->channel = detail::keeper(attr.channel);
    }
    /// The twin of the adopting constructor: empty on failure.
    cq_ex(adopt_t, ibv_cq_ex* raw, std::error_code& ec) noexcept
        : cq(adopt, raw ? ::ibv_cq_ex_to_cq(raw) : nullptr, ec) {}

    /// The C object, still owned by this.
    ibv_cq_ex* native_handle_ex() const noexcept { return reinterpret_cast<ibv_cq_ex*>(raw_); } // as ibv_cq_ex_to_cq

    /// Begins to poll; see polling. Precondition, asserted: not empty.
    polling start_poll() const noexcept { return polling(native_handle_ex()); }
};

static_assert(detail::move_only<cq_ex>);

} // namespace rdma::inline RDMACPP_ABI

#endif
