package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// rawSCTP returns the network of a raw socket for SCTP, as package net names it.
func rawSCTP(addr netip.Addr) string {
	if addr.Is4() {
		return fmt.Sprintf("ip4:%d", unix.IPPROTO_SCTP)
	}
	return fmt.Sprintf("ip6:%d", unix.IPPROTO_SCTP)
}

// resendAfter is the retransmission timeout.
const resendAfter = 200 * time.Millisecond

// association is the client's side of an SCTP association. It has at most one outstanding request.
type association struct {
	conn     *net.IPConn
	from, to uint16
	tag      uint32 // the client's
	peerTag  uint32
	sequence uint32 // of the next request
	deadline time.Time
}

var errAborted = fmt.Errorf("server aborted the association: %w", unix.ECONNREFUSED)

// associate establishes an association over a raw socket. The socket is connected, so an ICMP error for its destination
// becomes the error of the next read.
func (n *Namespace) associate(source netip.Addr, addr netip.AddrPort, deadline time.Time) (*association, error) {
	dialer := &net.Dialer{Deadline: deadline}
	if source.IsValid() {
		dialer.LocalAddr = &net.IPAddr{IP: source.AsSlice()}
	}
	conn, err := n.dial(dialer, rawSCTP(addr.Addr()), addr.Addr().String())
	if err != nil {
		return nil, err
	}
	raw, ok := conn.(*net.IPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("raw socket has type %T", conn), conn.Close())
	}
	a := &association{
		conn: raw, from: n.freshPort(), to: addr.Port(),
		tag: rand.Uint32() | 1, sequence: rand.Uint32(), deadline: deadline, // a tag is never zero
	}
	if err := a.setUp(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return a, nil
}

func (a *association) setUp() error {
	initAck, err := a.call(0, sctpChunk{kind: chunkInit, value: initValue(a.tag, a.sequence, nil)}, chunkInitAck)
	if err != nil {
		return err
	}
	if len(initAck) < initLength+chunkHeader {
		return fmt.Errorf("INIT ACK: %w", errShort)
	}
	a.peerTag = binary.BigEndian.Uint32(initAck)
	cookie := initAck[initLength+chunkHeader:] // the fabric's servers send no other parameter
	_, err = a.call(a.peerTag, sctpChunk{kind: chunkCookieEcho, value: cookie}, chunkCookieAck)
	return err
}

// exchange sends a request and acknowledges its response. The response has the request's sequence number: a server
// starts with the client's initial number and sends one response for each message.
func (a *association) exchange(deadline time.Time) ([]byte, error) {
	a.deadline = deadline
	data := sctpChunk{kind: chunkData, flags: wholeMessage, value: dataValue(a.sequence, []byte("?"))}
	for {
		reply, err := a.call(a.peerTag, data, chunkData)
		if err != nil {
			return nil, err
		}
		if len(reply) < dataPrefix {
			return nil, fmt.Errorf("DATA: %w", errShort)
		}
		if binary.BigEndian.Uint32(reply) != a.sequence {
			continue // a retransmission of an earlier response
		}
		err = a.send(a.peerTag, sctpChunk{kind: chunkSack, value: sackValue(a.sequence)})
		a.sequence++
		return reply[dataPrefix:], err
	}
}

func (a *association) local() netip.AddrPort {
	addr, _ := netip.ParseAddr(a.conn.LocalAddr().String()) // the kernel always returns a valid address
	return netip.AddrPortFrom(addr.Unmap(), a.from)
}

// Close ends the association, so that conntrack soon deletes its entry, and closes the socket. It ignores that the
// server may no longer exist.
func (a *association) Close() error {
	a.deadline = time.Now().Add(resendAfter)
	last := binary.BigEndian.AppendUint32(nil, a.sequence-1)
	if _, err := a.call(a.peerTag, sctpChunk{kind: chunkShutdown, value: last}, chunkShutdownAck); err == nil {
		_ = a.send(a.peerTag, sctpChunk{kind: chunkShutdownComplete})
	}
	return a.conn.Close()
}

// call retransmits a chunk until a chunk of the kind want arrives, and returns the value of that chunk.
func (a *association) call(tag uint32, chunk sctpChunk, want chunkKind) ([]byte, error) {
	for time.Now().Before(a.deadline) {
		if err := a.send(tag, chunk); err != nil {
			return nil, err
		}
		value, err := a.waitForChunk(want, earlier(a.deadline, time.Now().Add(resendAfter)))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return value, err
		}
	}
	return nil, fmt.Errorf("no response: %w", os.ErrDeadlineExceeded)
}

func (a *association) send(tag uint32, chunk sctpChunk) error {
	packet := sctpPacket{from: a.from, to: a.to, tag: tag, chunks: []sctpChunk{chunk}}
	_, err := a.conn.Write(packet.encode())
	return err
}

// waitForChunk reads packets until one for this association has a chunk of the kind want.
func (a *association) waitForChunk(want chunkKind, until time.Time) ([]byte, error) {
	if err := a.conn.SetReadDeadline(until); err != nil {
		return nil, err
	}
	buffer := make([]byte, 2*maxMessage)
	for {
		size, _, err := a.conn.ReadFromIP(buffer)
		if err != nil {
			return nil, err
		}
		packet, err := decodeSCTP(buffer[:size])
		if err != nil || packet.from != a.to || packet.to != a.from || packet.tag != a.tag {
			continue // a raw socket receives the packets of all associations
		}
		for _, chunk := range packet.chunks {
			switch chunk.kind {
			case want:
				return append([]byte(nil), chunk.value...), nil
			case chunkAbort:
				return nil, errAborted
			}
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
