//go:build linux

package conntrack

import (
	"encoding/binary"
	"fmt"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// reader reads the messages of a socket in place. It allocates nothing for them.
type reader struct {
	raw    syscall.RawConn
	buffer *[bufferSize]byte
}

// bufferSize is more than the kernel puts into one datagram, which is at most 32 KiB.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func newReader(socket *netlink.Conn) (*reader, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read conntrack: %w", err)
	}
	return &reader{raw: raw, buffer: buffers.Get().(*[bufferSize]byte)}, nil
}

func (r *reader) release() { buffers.Put(r.buffer) }

// receive waits for a datagram.
func (r *reader) receive() ([]byte, error) {
	var n int
	var recvErr error
	err := r.raw.Read(func(fd uintptr) bool {
		n, _, recvErr = unix.Recvfrom(int(fd), r.buffer[:], unix.MSG_DONTWAIT)
		return recvErr != unix.EAGAIN && recvErr != unix.EINTR
	})
	if err == nil {
		err = recvErr
	}
	if err != nil {
		return nil, err
	}
	return r.buffer[:n], nil
}

// read waits for a datagram and passes the payload of every message to each. It reports whether reading is over: each
// returned false or an error, the kernel sent its last message, or receiving failed.
func (r *reader) read(each func(message []byte) (more bool, err error)) (isOver bool, err error) {
	datagram, err := r.receive()
	if err != nil {
		return true, err
	}
	return eachMessage(datagram, each)
}

func eachMessage(datagram []byte, each func(message []byte) (more bool, err error)) (isOver bool, err error) {
	for len(datagram) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(datagram))
		if size < unix.SizeofNlMsghdr || size > len(datagram) {
			return true, errMalformed
		}
		kind, flags := binary.NativeEndian.Uint16(datagram[4:]), binary.NativeEndian.Uint16(datagram[6:])
		body := datagram[unix.SizeofNlMsghdr:size]
		switch {
		case kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR:
			return true, errorOf(body)
		case flags&unix.NLM_F_DUMP_INTR != 0:
			return true, unix.EINTR
		}
		more, err := each(body)
		if err != nil || !more {
			return true, err
		}
		datagram = datagram[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(datagram)):]
	}
	return false, nil
}

// errorOf returns the error in the message that ends a reply; nil if that reports success.
func errorOf(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return syscall.Errno(-code)
	}
	return nil
}
