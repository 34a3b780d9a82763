package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// rawServer is the servers' side of SCTP over a raw socket: it answers each message with one message.
type rawServer struct {
	conn   net.PacketConn
	port   uint16
	answer func(client netip.AddrPort) []byte
	peers  map[netip.AddrPort]peerTags
}

// peerTags are the verification tags of an association.
type peerTags struct {
	theirs, ours uint32
	sequence     uint32
}

func (s *Server) listenRawSCTP(addr netip.AddrPort) error {
	conn, err := s.namespace.ListenPacket(rawSCTP(addr.Addr()), addr.Addr().String())
	if err != nil {
		return err
	}
	server := &rawServer{conn: conn, port: addr.Port(), answer: s.answer, peers: map[netip.AddrPort]peerTags{}}
	s.closers = append(s.closers, conn)
	s.serve(server.serve)
	return nil
}

// serve answers packets until the socket is closed. What is not for us, or not SCTP, is somebody else's.
func (s *rawServer) serve() {
	buffer := make([]byte, 2*maxMessage)
	for {
		size, from, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		source, ok := from.(*net.IPAddr)
		packet, err := decodeSCTP(buffer[:size])
		if !ok || err != nil || packet.to != s.port {
			continue
		}
		addr, _ := netip.AddrFromSlice(source.IP)
		client := netip.AddrPortFrom(addr.Unmap(), packet.from)
		for _, chunk := range packet.chunks {
			tag, answers := s.react(client, packet.tag, chunk)
			if len(answers) == 0 {
				continue
			}
			reply := sctpPacket{from: s.port, to: packet.from, tag: tag, chunks: answers}
			_, _ = s.conn.WriteTo(reply.encode(), source) // a client that is gone needs no answer
		}
	}
}

// react returns the chunks that answer one chunk, and the tag to send them with. A chunk that came before is answered again:
// the answer was lost.
func (s *rawServer) react(client netip.AddrPort, tag uint32, chunk sctpChunk) (uint32, []sctpChunk) {
	switch chunk.kind {
	case chunkInit:
		return s.welcome(chunk)
	case chunkCookieEcho:
		peer, err := readCookie(chunk.value)
		if err != nil || peer.ours != tag {
			return 0, nil
		}
		s.peers[client] = peer
		return peer.theirs, []sctpChunk{{kind: chunkCookieAck}}
	}
	peer, known := s.peers[client]
	if !known || peer.ours != tag {
		return 0, nil
	}
	switch chunk.kind {
	case chunkData:
		if len(chunk.value) < dataPrefix {
			return 0, nil
		}
		sack := sctpChunk{kind: chunkSack, value: sackValue(binary.BigEndian.Uint32(chunk.value))}
		data := sctpChunk{kind: chunkData, flags: wholeMessage, value: dataValue(peer.sequence, s.answer(client))}
		return peer.theirs, []sctpChunk{sack, data}
	case chunkShutdown:
		return peer.theirs, []sctpChunk{{kind: chunkShutdownAck}}
	case chunkShutdownComplete, chunkAbort:
		delete(s.peers, client)
	}
	return 0, nil
}

// welcome answers INIT. All that is known of the client goes into the cookie that it sends back.
func (s *rawServer) welcome(chunk sctpChunk) (uint32, []sctpChunk) {
	if len(chunk.value) < initLength {
		return 0, nil
	}
	peer := peerTags{theirs: binary.BigEndian.Uint32(chunk.value), ours: rand.Uint32() | 1, sequence: rand.Uint32()}
	value := initValue(peer.ours, peer.sequence, peer.cookie())
	return peer.theirs, []sctpChunk{{kind: chunkInitAck, value: value}}
}

func (p peerTags) cookie() []byte {
	b := binary.BigEndian.AppendUint32(nil, p.theirs)
	b = binary.BigEndian.AppendUint32(b, p.ours)
	return binary.BigEndian.AppendUint32(b, p.sequence)
}

func readCookie(b []byte) (peerTags, error) {
	if len(b) != 12 {
		return peerTags{}, fmt.Errorf("a cookie of %d bytes", len(b))
	}
	word := binary.BigEndian.Uint32
	return peerTags{theirs: word(b), ours: word(b[4:]), sequence: word(b[8:])}, nil
}
