package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
)

// rawServer is the server side of SCTP over a raw socket. It responds to each message with one message.
type rawServer struct {
	conn  net.PacketConn
	addr  netip.AddrPort
	reply func(own, client netip.AddrPort) []byte
	peers map[netip.AddrPort]peerTags
}

// peerTags are the verification tags of an association.
type peerTags struct {
	client, server uint32
}

func (s *Server) listenRawSCTP(addr netip.AddrPort) error {
	conn, err := s.namespace.ListenPacket(rawSCTP(addr.Addr()), addr.Addr().String())
	if err != nil {
		return err
	}
	server := &rawServer{conn: conn, addr: addr, reply: s.reply, peers: map[netip.AddrPort]peerTags{}}
	s.closers = append(s.closers, conn)
	s.serve(server.serve)
	return nil
}

// serve responds to packets until the socket is closed. It skips malformed packets and packets for other ports.
func (s *rawServer) serve() {
	buffer := make([]byte, 2*maxMessage)
	for {
		size, from, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		source, ok := from.(*net.IPAddr)
		packet, err := decodeSCTP(buffer[:size])
		if !ok || err != nil || packet.to != s.addr.Port() {
			continue
		}
		addr, _ := netip.AddrFromSlice(source.IP)
		client := netip.AddrPortFrom(addr.Unmap(), packet.from)
		for _, chunk := range packet.chunks {
			tag, replies := s.handleChunk(client, packet.tag, chunk)
			if len(replies) == 0 {
				continue
			}
			reply := sctpPacket{from: s.addr.Port(), to: packet.from, tag: tag, chunks: replies}
			_, _ = s.conn.WriteTo(reply.encode(), source) // ignore the error if the client no longer exists
		}
	}
}

// handleChunk returns the response to a chunk, and the tag to send it with. It responds to a repeated chunk again, because
// the first response was lost.
func (s *rawServer) handleChunk(client netip.AddrPort, tag uint32, chunk sctpChunk) (uint32, []sctpChunk) {
	switch chunk.kind {
	case chunkInit:
		return replyToInit(client, chunk)
	case chunkCookieEcho:
		peer, err := readCookie(chunk.value)
		if err != nil || peer.server != tag {
			return 0, nil
		}
		s.peers[client] = peer
		return peer.client, []sctpChunk{{kind: chunkCookieAck}}
	}
	peer, known := s.peers[client]
	if !known || peer.server != tag {
		return 0, nil
	}
	switch chunk.kind {
	case chunkData:
		if len(chunk.value) < dataPrefix {
			return 0, nil
		}
		sequence := binary.BigEndian.Uint32(chunk.value)
		sack := sctpChunk{kind: chunkSack, value: sackValue(sequence)}
		data := sctpChunk{kind: chunkData, flags: wholeMessage, value: dataValue(sequence, s.reply(s.addr, client))}
		return peer.client, []sctpChunk{sack, data}
	case chunkShutdown:
		return peer.client, []sctpChunk{{kind: chunkShutdownAck}}
	case chunkShutdownComplete, chunkAbort:
		delete(s.peers, client)
	}
	return 0, nil
}

// replyToInit responds to INIT. The whole state of the association is in the cookie that the client sends back. The server
// uses the client's sequence numbers, because there is one response for each message; so it can resend a response
// without storing it.
//
// A repeated INIT gets the same tag again, because conntrack uses the newest INIT ACK and drops packets with the tag of
// an older one.
func replyToInit(client netip.AddrPort, chunk sctpChunk) (uint32, []sctpChunk) {
	if len(chunk.value) < initLength {
		return 0, nil
	}
	peer := peerTags{client: binary.BigEndian.Uint32(chunk.value)}
	seed := binary.BigEndian.AppendUint32([]byte(client.String()), peer.client)
	peer.server = crc32.Checksum(seed, castagnoli) | 1 // a tag is never zero
	value := initValue(peer.server, binary.BigEndian.Uint32(chunk.value[initLength-4:]), peer.cookie())
	return peer.client, []sctpChunk{{kind: chunkInitAck, value: value}}
}

func (p peerTags) cookie() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, p.client), p.server)
}

func readCookie(b []byte) (peerTags, error) {
	if len(b) != 8 {
		return peerTags{}, fmt.Errorf("cookie has %d bytes, want 8", len(b))
	}
	return peerTags{client: binary.BigEndian.Uint32(b), server: binary.BigEndian.Uint32(b[4:])}, nil
}
