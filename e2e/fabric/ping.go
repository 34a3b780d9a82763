package fabric

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Echo is the ICMP response to an echo request.
type Echo struct {
	From netip.Addr
	// Type and Code are those of ICMP, or of ICMPv6 for an IPv6 address: an echo reply, or the error that a machine on the
	// path sent.
	Type, Code int
}

// icmpFamily holds the differences between ICMP and ICMPv6.
type icmpFamily struct {
	protocol             int
	network, unspecified string
	request, reply       icmp.Type
	header               int // header length of the packet that an error quotes
	quotedType           int // type of an echo request in the quoted packet
}

var (
	icmpIPv4 = icmpFamily{
		protocol: 1, network: "ip4:icmp", unspecified: "0.0.0.0", request: ipv4.ICMPTypeEcho, reply: ipv4.ICMPTypeEchoReply,
		header: ipv4.HeaderLen, quotedType: int(ipv4.ICMPTypeEcho),
	}
	icmpIPv6 = icmpFamily{
		protocol: 58, network: "ip6:ipv6-icmp", unspecified: "::", request: ipv6.ICMPTypeEchoRequest, reply: ipv6.ICMPTypeEchoReply,
		header: ipv6.HeaderLen, quotedType: int(ipv6.ICMPTypeEchoRequest),
	}
)

// Ping sends one ICMP echo request and returns the response. The error wraps syscall.EPERM if the request was stopped
// before it left, and os.ErrDeadlineExceeded if there was no response.
func (n *Namespace) Ping(addr netip.Addr, timeout time.Duration) (Echo, error) {
	echo, err := n.ping(addr, time.Now().Add(timeout))
	if err != nil {
		return Echo{}, fmt.Errorf("ping %s from %s: %w", addr, n.Name, err)
	}
	return echo, nil
}

func (n *Namespace) ping(addr netip.Addr, deadline time.Time) (Echo, error) {
	family := icmpIPv4
	if addr.Is6() {
		family = icmpIPv6
	}
	// The socket is not connected, because an error may come from any machine on the path.
	conn, err := n.ListenPacket(family.network, family.unspecified)
	if err != nil {
		return Echo{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return Echo{}, err
	}
	id := 1 + rand.IntN(1<<16-1)
	request := icmp.Message{Type: family.request, Body: &icmp.Echo{ID: id, Seq: 1, Data: []byte("vicinity")}}
	packet, err := request.Marshal(nil) // the kernel writes the checksum of ICMPv6
	if err != nil {
		return Echo{}, err
	}
	if _, err := conn.WriteTo(packet, &net.IPAddr{IP: addr.AsSlice()}); err != nil {
		return Echo{}, err
	}
	return family.waitForEcho(conn, uint16(id))
}

// waitForEcho reads packets until one belongs to the echo request with the given identifier. A raw socket receives all
// ICMP packets of its namespace.
func (family icmpFamily) waitForEcho(conn net.PacketConn, id uint16) (Echo, error) {
	buffer := make([]byte, 2*maxMessage)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return Echo{}, err
		}
		message, err := icmp.ParseMessage(family.protocol, buffer[:size])
		if err != nil || !family.isResponseTo(message, id) {
			continue
		}
		source, _ := netip.ParseAddr(from.String()) // the kernel always returns a valid address
		return Echo{From: source.Unmap().WithZone(""), Type: int(buffer[0]), Code: message.Code}, nil
	}
}

func (family icmpFamily) isResponseTo(message *icmp.Message, id uint16) bool {
	switch body := message.Body.(type) {
	case *icmp.Echo:
		return message.Type == family.reply && body.ID == int(id)
	case *icmp.DstUnreach:
		quoted := body.Data
		return len(quoted) >= family.header+8 && int(quoted[family.header]) == family.quotedType &&
			binary.BigEndian.Uint16(quoted[family.header+4:]) == id
	}
	return false
}
