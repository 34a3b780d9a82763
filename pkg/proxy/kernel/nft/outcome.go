//go:build linux

package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// failure is the kernel's error for one message of a batch.
type failure struct {
	sequence uint32
	errno    unix.Errno
	text     string // the kernel's own explanation, rarely given
}

// outcome reads the kernel's replies to a batch whose last operation requested an acknowledgement, and returns the
// failures, in their order. The kernel has queued all replies already, the failures before the acknowledgement. Replies
// to other batches are skipped.
func (s *socket) outcome(ctx context.Context, first, last uint32) ([]failure, error) {
	var failures []failure
	for {
		b, err := s.nextReply(ctx, len(failures) > 0)
		if errors.Is(err, unix.EAGAIN) {
			return failures, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		for m, err := range parseMessages(b) {
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			}
			if m.kind != unix.NLMSG_ERROR || m.sequence-first > last-first+1 {
				continue
			}
			reply := parseFailure(m)
			if reply.errno != 0 {
				failures = append(failures, reply)
			}
			if m.sequence == last {
				return failures, nil
			}
		}
	}
}

// nextReply returns the next datagram. It does not wait after a failure: a batch that fails as a whole is not
// acknowledged.
func (s *socket) nextReply(ctx context.Context, failed bool) ([]byte, error) {
	if failed {
		return s.poll()
	}
	return s.reply(ctx)
}

// parseFailure reads an NLMSG_ERROR: the negative errno, only the header of the failed message (CapAcknowledge) and,
// with NLM_F_ACK_TLVS, attributes.
func parseFailure(m message) failure {
	parsed := failure{sequence: m.sequence}
	if len(m.body) < 4+headerSize {
		parsed.errno = unix.EBADMSG
		return parsed
	}
	parsed.errno = unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
	if m.flags&unix.NLM_F_ACK_TLVS != 0 {
		parsed.text = textOf(m.body[4+headerSize:], unix.NLMSGERR_ATTR_MSG)
	}
	return parsed
}
