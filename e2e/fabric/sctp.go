package fabric

import (
	"bufio"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// The fabric has two implementations of SCTP. If the kernel already has SCTP loaded, the fabric uses its sockets: the
// kernel would answer raw packets with ABORT. Otherwise the fabric implements the small part of SCTP that it needs over
// raw sockets (sctp_client.go, sctp_server.go): many kernels lack SCTP, and opening one such socket would load sctp.ko
// into the whole machine, which a test must not do. Without this code all tests of e2e/packets would fail on such a
// machine, because each pod also serves SCTP.
var kernelHasSCTP = sync.OnceValue(func() bool {
	protocols, err := os.Open("/proc/net/protocols")
	if err != nil {
		return false
	}
	defer protocols.Close()
	lines := bufio.NewScanner(protocols)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "SCTP ") {
			return true
		}
	}
	return false
})

// openSCTP establishes an association.
func (n *Namespace) openSCTP(source netip.Addr, addr netip.AddrPort, deadline time.Time) (transport, error) {
	if !kernelHasSCTP() {
		return n.associate(source, addr, deadline)
	}
	conn, err := n.dialStream(protocolSCTP, source, addr, deadline)
	if err != nil {
		return nil, err
	}
	return messages{conn}, nil
}

func (s *Server) listenSCTP(addr netip.AddrPort) error {
	if !kernelHasSCTP() {
		return s.listenRawSCTP(addr)
	}
	return s.listenStream(protocolSCTP, addr)
}
