//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// What linux/netfilter/nfnetlink_conntrack.h and the kernel's nf_internals.h define and the library does not.
const (
	msgStatistics     = 5      // IPCTNL_MSG_CT_GET_STATS
	attrFilter        = 25     // CTA_FILTER, since Linux 5.8: a dump says which entries it wants
	attrOriginalFlags = 1      // CTA_FILTER_ORIG_FLAGS: what of CTA_TUPLE_ORIG they have in common
	flagProtocol      = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
)

// The kernel answers before the sending call returns, so that an answer that is not there has been lost. What is left
// of an old answer is there at once.
var (
	answerTimeout = unix.Timeval{Sec: 30}
	restTimeout   = unix.Timeval{Usec: 20_000}
)

// socket is a netlink socket of netfilter. It stays in the network namespace in which it was opened.
type socket struct{ handle *nl.SocketHandle }

func openSocket() (*socket, error) {
	opened, err := nl.Subscribe(unix.NETLINK_NETFILTER) // to nothing
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if err := errors.Join(opened.SetSendTimeout(&answerTimeout), opened.SetReceiveTimeout(&answerTimeout)); err != nil {
		opened.Close()
		return nil, fmt.Errorf("setting up a netlink socket: %w", err)
	}
	return &socket{handle: &nl.SocketHandle{Socket: opened}}, nil
}

func (s *socket) close() { s.handle.Close() }

// request returns a request to conntrack about a family.
func (s *socket) request(kind, flags uint16, family byte) *nl.NetlinkRequest {
	request := &nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | kind, Flags: unix.NLM_F_REQUEST | flags},
		Sockets:  map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: s.handle},
	}
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return request
}

// try asks for something small, to see whether conntrack answers at all.
func (s *socket) try() error {
	_, err := s.request(msgStatistics, unix.NLM_F_ACK, unix.AF_UNSPEC).Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

// dump gives each UDP entry of a family to each. Entries that come and go meanwhile may be among them or not. The
// error is errInterrupted if others may be missing too.
func (s *socket) dump(ctx context.Context, family model.Family, each func(entry)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var unreadable error
	err := s.dumpRequest(family).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		e, err := parseEntry(message)
		switch {
		case err != nil:
			unreadable = err
		case e.protocol == model.UDP:
			each(e)
		}
		return ctx.Err() == nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, unix.EBUSY):
		s.drain()
		return errInterrupted
	case errors.Is(err, nl.ErrDumpInterrupted), errors.Is(err, unix.EINTR):
		return errInterrupted
	}
	return errors.Join(err, unreadable)
}

// dumpRequest asks for the UDP entries of a family alone: the kernel compares faster than it copies, and most entries
// are TCP's.
func (s *socket) dumpRequest(family model.Family) *nl.NetlinkRequest {
	request := s.request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, number(family))
	original := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	original.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil).AddRtAttr(nl.CTA_PROTO_NUM, nl.Uint8Attr(uint8(model.UDP)))
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|attrFilter, nil)
	filter.AddRtAttr(attrOriginalFlags, nl.Uint32Attr(flagProtocol))
	request.AddData(original)
	request.AddData(filter)
	return request
}

// drain reads what is left of a dump whose reading was given up because of an error: the kernel begins no other one
// before.
func (s *socket) drain() {
	_ = s.handle.Socket.SetReceiveTimeout(&restTimeout)
	for {
		if _, _, err := s.handle.Socket.Receive(); err != nil {
			break
		}
	}
	_ = s.handle.Socket.SetReceiveTimeout(&answerTimeout)
}

// delete deletes an entry. It reports whether the entry was still there.
func (s *socket) delete(family model.Family, e entry) (deleted bool, err error) {
	request := s.request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, number(family))
	request.AddRawData(e.key)
	_, err = request.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// number is the kernel's number of a family (NFPROTO_*).
func number(family model.Family) byte {
	if family == model.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}
