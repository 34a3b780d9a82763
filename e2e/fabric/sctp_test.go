package fabric

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSCTPPacketEncoding(t *testing.T) {
	want := sctpPacket{from: 20001, to: 8080, tag: 0xdeadbeef, chunks: []sctpChunk{
		{kind: chunkSack, value: sackValue(7)},
		{kind: chunkData, flags: wholeMessage, value: dataValue(8, []byte("three"))},
	}}
	encoded := want.encode()
	if len(encoded)%4 != 0 {
		t.Errorf("the packet has %d bytes, want a multiple of four", len(encoded))
	}
	got, err := decodeSCTP(encoded)
	must(t, err)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sctpPacket{}, sctpChunk{})); diff != "" {
		t.Errorf("the packet changed (-want +got):\n%s", diff)
	}
}

// The test encodes a COOKIE ACK and computes its checksum bit by bit, as defined in RFC 9260, appendix A.
func TestSCTPChecksum(t *testing.T) {
	encoded := sctpPacket{from: 1, to: 2, tag: 3, chunks: []sctpChunk{{kind: chunkCookieAck}}}.encode()
	zeroed := append([]byte(nil), encoded...)
	clear(zeroed[8:12])
	sum := ^uint32(0)
	for _, b := range zeroed {
		sum ^= uint32(b)
		for range 8 {
			sum = sum>>1 ^ 0x82f63b78*(sum&1)
		}
	}
	sum = ^sum
	want := []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)}
	if diff := cmp.Diff(want, encoded[8:12]); diff != "" {
		t.Errorf("the checksum differs (-want +got):\n%s", diff)
	}
}

func TestInvalidSCTPPacketIsRejected(t *testing.T) {
	valid := sctpPacket{from: 1, to: 2, tag: 3, chunks: []sctpChunk{{kind: chunkInit, value: initValue(4, 5, nil)}}}.encode()
	flipped := append([]byte(nil), valid...)
	flipped[14] ^= 1
	tests := map[string]struct {
		bytes []byte
		want  error
	}{
		"an empty packet is too short":            {nil, errShort},
		"a header cut short is too short":         {valid[:11], errShort},
		"a flipped bit is caught by the checksum": {flipped, errChecksum},
		"a packet cut short fails the checksum":   {valid[:20], errChecksum},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeSCTP(test.bytes); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// If a response is lost, the client requests it again by repeating the chunk.
func TestServerRepliesToRepeatedChunk(t *testing.T) {
	tb := newTestbed(t)
	server := &rawServer{reply: (&Server{namespace: tb.webA.Namespace}).reply, peers: map[netip.AddrPort]peerTags{}}
	var client netip.AddrPort
	tag, replies := server.handleChunk(client, 0, sctpChunk{kind: chunkInit, value: initValue(4, 5, nil)})
	if tag != 4 || len(replies) != 1 || replies[0].kind != chunkInitAck {
		t.Fatalf("response to INIT: tag %d, %v", tag, replies)
	}
	if _, again := server.handleChunk(client, 0, sctpChunk{kind: chunkInit, value: initValue(4, 5, nil)}); !reflect.DeepEqual(again, replies) {
		t.Errorf("response to a repeated INIT: %v, first %v", again, replies)
	}
	cookie := replies[0].value[initLength+chunkHeader:]
	peer, err := readCookie(cookie)
	must(t, err)
	for _, step := range []struct {
		send sctpChunk
		want []chunkKind
	}{
		{sctpChunk{kind: chunkCookieEcho, value: cookie}, []chunkKind{chunkCookieAck}},
		{sctpChunk{kind: chunkData, value: dataValue(5, []byte("?"))}, []chunkKind{chunkSack, chunkData}},
		{sctpChunk{kind: chunkShutdown, value: make([]byte, 4)}, []chunkKind{chunkShutdownAck}},
	} {
		for range 2 {
			_, replies := server.handleChunk(client, peer.server, step.send)
			var got []chunkKind
			for _, reply := range replies {
				got = append(got, reply.kind)
			}
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Errorf("wrong response to chunk %d (-want +got):\n%s", step.send.kind, diff)
			}
		}
		if _, replies := server.handleChunk(client, peer.server+1, step.send); len(replies) != 0 {
			t.Errorf("chunk %d with a wrong tag got a response", step.send.kind)
		}
	}
}
