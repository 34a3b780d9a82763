package accounting_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// ask asks a Service so many times by each of its frontends and protocols, and returns how often each pod answered.
func (s *town) ask(from *fabric.Namespace, of *service, times int) map[string]uint64 {
	s.t.Helper()
	answers := map[string]uint64{}
	for range times {
		for _, network := range []string{"tcp", "udp", "sctp"} {
			for _, to := range []netip.AddrPort{
				of.clusterIP(model.IPv4), of.clusterIP(model.IPv6),
				netip.AddrPortFrom(s.here.IPv4, of.nodePort()), netip.AddrPortFrom(s.here.IPv6, of.nodePort()),
			} {
				reply, err := from.Ask(network, to, fabric.Patience)
				must.Succeed(s.t, err)
				answers[reply.Pod]++
			}
		}
	}
	return answers
}

// transfer sends and receives so many bytes over a connection.
func transfer(conn net.Conn, sent, received int) error {
	header := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(sent)), uint64(received))
	if _, err := conn.Write(header); err != nil {
		return err
	}
	writing := make(chan error, 1)
	go func() {
		_, err := io.CopyN(conn, zeros{}, int64(sent))
		writing <- err
	}()
	_, err := io.CopyN(io.Discard, conn, int64(received))
	if err != nil {
		_ = conn.Close()
	}
	if written := <-writing; written != nil {
		return written
	}
	if err != nil {
		return err
	}
	// The other end says when it has read everything.
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// open opens a connection for transfers, on which nothing is sent but these.
func (s *town) open(to *service, family model.Family) net.Conn {
	s.t.Helper()
	conn, err := s.client.Dial("tcp", to.clusterIP(family).String(), fabric.Patience)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	silence(s.t, conn)
	return conn
}

// silence has one end of a connection not ask whether the other one is still there.
func silence(t *testing.T, conn net.Conn) {
	if err := conn.(*net.TCPConn).SetKeepAlive(false); err != nil {
		t.Error(err)
	}
}

// zeros are as many as anybody wants.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// serveTransfers is the other end of transfers.
func serveTransfers(t *testing.T, on *fabric.Pod) {
	t.Helper()
	for _, addr := range []netip.Addr{on.IPv4, on.IPv6} {
		listener, err := on.Listen("tcp", netip.AddrPortFrom(addr, transferPort).String())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					silence(t, conn)
					for serveTransfer(conn) == nil {
						continue
					}
				}()
			}
		}()
	}
}

func serveTransfer(conn net.Conn) error {
	var header [16]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return err
	}
	received, sent := binary.BigEndian.Uint64(header[:8]), binary.BigEndian.Uint64(header[8:])
	reading := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, conn, int64(received))
		reading <- err
	}()
	if _, err := io.CopyN(conn, zeros{}, int64(sent)); err != nil {
		return err
	}
	if err := <-reading; err != nil {
		return err
	}
	_, err := conn.Write([]byte{1})
	return err
}

// judge has a client's own kernel count what it sends to each Service and receives from it, by rules of its own.
func (s *town) judge(client *fabric.Namespace) {
	s.t.Helper()
	var rules strings.Builder
	rules.WriteString("table inet judge {\n")
	for _, of := range s.services {
		fmt.Fprintf(&rules, "counter sent_%d { }\ncounter received_%[1]d { }\n", of.number)
	}
	for _, side := range []struct{ hook, counter, addr, port string }{
		{"output", "sent", "daddr", "dport"}, {"input", "received", "saddr", "sport"},
	} {
		fmt.Fprintf(&rules, "chain %s { type filter hook %[1]s priority 0;\n", side.hook)
		for _, of := range s.services {
			for _, match := range []string{
				"ip " + side.addr + " " + of.ipv4().String(), "ip6 " + side.addr + " " + of.ipv6().String(),
				fmt.Sprintf("meta l4proto { tcp, udp, sctp } th %s %d", side.port, of.nodePort()),
			} {
				fmt.Fprintf(&rules, "%s counter name %s_%d\n", match, side.counter, of.number)
			}
		}
		rules.WriteString("}\n")
	}
	rules.WriteString("}\n")
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(rules.String())
	_, err := client.Run(command)
	must.Succeed(s.t, err)
}

var counter = regexp.MustCompile(`counter (sent|received)_(\d+) \{\s+packets \d+ bytes (\d+)`)

// judged are the bytes that a client's own kernel has counted, by direction and Service.
func (s *town) judged(client *fabric.Namespace) map[string]uint64 {
	s.t.Helper()
	text, err := client.Run(exec.Command("nft", "list", "counters", "table", "inet", "judge"))
	must.Succeed(s.t, err)
	bytes := map[string]uint64{}
	for _, found := range counter.FindAllStringSubmatch(text, -1) {
		number, err := strconv.Atoi(found[2])
		must.Succeed(s.t, err)
		bytes[found[1]+" "+s.services[number-1].name], err = strconv.ParseUint(found[3], 10, 64)
		must.Succeed(s.t, err)
	}
	return bytes
}
