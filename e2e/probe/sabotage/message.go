//go:build linux

package sabotage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	replyTimeout = 10 // seconds
	replySize    = 1 << 16
)

// send executes an action in a transaction of its own. It returns the kernel's errno if the kernel rejects it.
func send(a action, family byte) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(socket)
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: replyTimeout}); err != nil {
		return fmt.Errorf("set read deadline: %w", err)
	}
	if err := unix.Sendto(socket, transaction(a, family), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send transaction: %w", err)
	}
	reply := make([]byte, replySize)
	read, _, err := unix.Recvfrom(socket, reply, 0)
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	return errnoOf(reply[:read])
}

// transaction returns the bytes of an action between the messages that begin and end a batch. Only the action requests
// an acknowledgement.
func transaction(a action, family byte) []byte {
	var names []byte
	for i, name := range a.names {
		names = append(names, attribute(uint16(i+1), name)...)
	}
	batch := message(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	batch = append(batch, message(unix.NFNL_SUBSYS_NFTABLES<<8|a.message, unix.NLM_F_ACK, family, 0, names)...)
	return append(batch, message(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)...)
}

// message returns a nlmsghdr and a nfgenmsg (linux/netlink.h, linux/netfilter/nfnetlink.h) with attributes.
func message(kind, flags uint16, family byte, resource uint16, attributes []byte) []byte {
	const header, generic = 16, 4
	bytes := binary.NativeEndian.AppendUint32(nil, uint32(header+generic+len(attributes)))
	bytes = binary.NativeEndian.AppendUint16(bytes, kind)
	bytes = binary.NativeEndian.AppendUint16(bytes, unix.NLM_F_REQUEST|flags)
	bytes = binary.NativeEndian.AppendUint32(bytes, 0) // sequence
	bytes = binary.NativeEndian.AppendUint32(bytes, 0) // port ID 0: the kernel
	bytes = append(bytes, family, unix.NFNETLINK_V0)
	bytes = binary.BigEndian.AppendUint16(bytes, resource)
	return append(bytes, attributes...)
}

// attribute returns a nlattr with a NUL-terminated string, padded to four bytes.
func attribute(kind uint16, text string) []byte {
	const header, alignment = 4, 4
	bytes := binary.NativeEndian.AppendUint16(nil, uint16(header+len(text)+1))
	bytes = binary.NativeEndian.AppendUint16(bytes, kind)
	bytes = append(bytes, text...)
	for bytes = append(bytes, 0); len(bytes)%alignment != 0; {
		bytes = append(bytes, 0)
	}
	return bytes
}

// errnoOf decodes the kernel's reply (a nlmsghdr of type NLMSG_ERROR with a negative errno or 0), and returns the errno
// as an error, or nil for 0.
func errnoOf(reply []byte) error {
	const header, errno = 16, 4
	if len(reply) < header+errno {
		return fmt.Errorf("reply has %d bytes, too few for an nlmsgerr", len(reply))
	}
	if kind := binary.NativeEndian.Uint16(reply[4:]); kind != unix.NLMSG_ERROR {
		return fmt.Errorf("reply has type %d, want NLMSG_ERROR", kind)
	}
	code := int32(binary.NativeEndian.Uint32(reply[header:]))
	if code > 0 {
		return errors.New("errno in the reply is positive")
	}
	if code == 0 {
		return nil
	}
	return unix.Errno(-code)
}
