package packets_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	// dialsVariable is the environment variable with the total number of connections of
	// TestNoEstablishedConnectionEndsWhileEndpointsFlap. defaultDials is the default number.
	dialsVariable = "FLAPPING_DIALS"
	defaultDials  = 9_000
	// dialsPerSecond is the rate of connections in each of the test's clusters.
	dialsPerSecond = 200
)

// TestNoEstablishedConnectionEndsWhileEndpointsFlap switches a Service's selector between two sets of pods twice a
// second, and makes one pod of each set unready at a time. All pods keep serving. Replies are delayed and some packets
// are lost, so replies arrive while the proxy decides about the connections. The kernel's destroy events show which
// entries were deleted.
func TestNoEstablishedConnectionEndsWhileEndpointsFlap(t *testing.T) {
	totalDials := defaultDials
	if text := os.Getenv(dialsVariable); text != "" {
		var err error
		totalDials, err = strconv.Atoi(text)
		must.Succeed(t, err)
	}
	cases := map[string]flapping{
		"1 ms, right after the start": {delay: time.Millisecond, pods: 3, hasUnknownHistory: true},
		"20 ms, few pods":             {delay: 20 * time.Millisecond, pods: 2},
		"50 ms":                       {delay: 50 * time.Millisecond, pods: 3},
		"50 ms, an old kernel":        {delay: 50 * time.Millisecond, pods: 3, isOldKernel: true},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.run(t, totalDials/len(cases))
		})
	}
}

// flapping describes how endpoints flap.
type flapping struct {
	delay time.Duration // one way
	pods  int           // of each set
	// If hasUnknownHistory is set, the proxy has just started and does not know which endpoints were removed before.
	hasUnknownHistory bool
	// If isOldKernel is set, the kernel cannot delete an entry conditionally (only if unreplied), so a reply may arrive
	// between the proxy's check and its deletion.
	isOldKernel bool
}

// oldKernel is a table as in kernels before about Linux 6.12.
type oldKernel struct{ *conntrack.Conn }

func (oldKernel) DeleteUnreplied([]*conntrack.Entry) ([]*conntrack.Entry, error) {
	return nil, conntrack.ErrNoConditionalDelete
}

func (f flapping) run(t *testing.T, dials int) {
	c := newCluster(t, 2)
	clientNode, serverNode := c.nodes[0], c.nodes[1]
	client := c.addPod(clientNode, "client")
	var sets [2][]*pod
	for i := range sets {
		for k := range f.pods {
			server := &pod{Pod: c.addPod(serverNode, fmt.Sprintf("server-%d-%d", i, k)), zone: "zone-of-" + serverNode.Name}
			startEchoServer(t, server.Namespace)
			sets[i] = append(sets[i], server)
		}
	}
	unresponsive := c.addUnresponsive(serverNode) // in both sets for ten seconds, then in none for ten seconds, and so on
	lossyPath, err := c.fabric.AddLossyPath("long-way", clientNode.Node, serverNode.Node)
	must.Succeed(t, err)
	lossyPath.SetImpairment(f.delay, 0.02)
	c.apply(service().Merge(endpoints(append(sets[0], unresponsive)...)))
	deletions := countDeletedEntries(t, clientNode.Namespace)
	if !f.hasUnknownHistory {
		clientNode.serviceIndex.Snapshot().RemovalsRecordedSince = time.Now().Add(-conntrackgc.StaleEntryWindow)
	}
	var table conntrack.Table = clientNode.flows
	if f.isOldKernel {
		table = oldKernel{clientNode.flows}
	}
	cleanup := startCleanupOf(t, clientNode, table)

	var to []netip.AddrPort
	for _, family := range model.Families {
		to = append(to, netip.AddrPortFrom(web.addr(model.ClusterIP, family), servicePort))
	}
	load := &echoClients{to: to, timeout: 4 * fabric.Timeout}
	done := make(chan error, 1)
	go func() { done <- client.Do(func() error { return load.dial(dials) }) }()
	switches := 0
	for over := false; !over; {
		select {
		case err := <-done:
			must.Succeed(t, err)
			over = true
		case <-time.After(500 * time.Millisecond):
			switches++
			set := sets[switches%2]
			unready := switches / 2 % len(set)
			ready := append(append([]*pod{}, set[:unready]...), set[unready+1:]...)
			if switches/20%2 == 0 {
				ready = append(ready, unresponsive)
			}
			c.apply(endpoints(ready...))
		}
	}
	c.apply(endpoints(sets[0]...))
	load.exchanges.Wait()
	wait.Until(t, "stale entries of connections to the unresponsive pod are deleted", func() bool { return cleanup.count(model.TCP) > 0 })
	t.Logf("%d switches, %d dials: %d replied, %d hung after connecting, %d never connected (%v); %d stale entries deleted; "+
		"the kernel reported %d entries deleted by request: %d unreplied, %d closed, %d open; %d packets were lost on the link",
		switches, dials, load.replied.Load(), load.hung.Load(), load.failed.Load(), load.failure.Load(), cleanup.count(model.TCP),
		deletions.unreplied.Load()+deletions.closed.Load()+deletions.open.Load(), deletions.unreplied.Load(), deletions.closed.Load(),
		deletions.open.Load(), lossyPath.Dropped())
	tolerated := int64(0)
	if f.isOldKernel {
		tolerated = int64(dials) / 1000
	}
	if deletions.open.Load() > tolerated || load.hung.Load() > tolerated {
		t.Errorf("%d entries of open connections were deleted, and %d clients hang, want at most %d of each",
			deletions.open.Load(), load.hung.Load(), tolerated)
	}
	if deletions.unreplied.Load() == 0 || load.replied.Load() < int64(dials)*9/10 {
		t.Errorf("%d unreplied entries were deleted, and %d of %d dials got a reply, so the test proves nothing",
			deletions.unreplied.Load(), load.replied.Load(), dials)
	}
}

// startEchoServer starts an echo server on a machine.
func startEchoServer(t *testing.T, namespace *fabric.Namespace) {
	t.Helper()
	listener, err := namespace.Listen("tcp", fmt.Sprint(":", podPort))
	must.Succeed(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	})
}

// echoClients are clients that connect, send a byte, wait for the response and reset the connection, so that its port
// is free again.
type echoClients struct {
	to      []netip.AddrPort
	timeout time.Duration

	exchanges             sync.WaitGroup
	replied, hung, failed atomic.Int64
	// failure is the last error of a client that never connected.
	failure atomic.Value
}

// dial makes the connections from the network of the calling thread.
func (c *echoClients) dial(dials int) error {
	ticker := time.NewTicker(time.Second / dialsPerSecond)
	defer ticker.Stop()
	for i := range dials {
		<-ticker.C
		conn, err := startDial(c.to[i%len(c.to)])
		if err != nil {
			return err
		}
		c.exchanges.Go(func() { c.exchange(conn) })
	}
	return nil
}

// startDial returns a connecting socket.
func startDial(to netip.AddrPort) (*os.File, error) {
	family, addr := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: ipv4Bytes(to), Port: int(to.Port())})
	if to.Addr().Is6() {
		family, addr = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, addr); !errors.Is(err, unix.EINPROGRESS) {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", to, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), to.String()), nil
}

func ipv4Bytes(to netip.AddrPort) (addr [4]byte) {
	if to.Addr().Is4() {
		addr = to.Addr().As4()
	}
	return addr
}

func (c *echoClients) exchange(conn *os.File) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		c.failed.Add(1)
		return
	}
	if _, err := conn.Write([]byte{'?'}); err != nil { // waits until the connection is established
		c.failed.Add(1)
		c.failure.Store(err.Error())
		return
	}
	err := conn.SetDeadline(time.Now().Add(c.timeout))
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		c.hung.Add(1)
		return
	}
	c.replied.Add(1)
	raw, err := conn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	}
}

// deletedEntries counts the TCP connections that ended because a process requested it from the kernel, by their state.
type deletedEntries struct{ unreplied, closed, open atomic.Int64 }

// countDeletedEntries counts until the test ends. It parses the kernel's messages itself, not with the code under test.
func countDeletedEntries(t *testing.T, namespace *fabric.Namespace) *deletedEntries {
	t.Helper()
	const groupDestroy = 3
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: namespace.FD()})
	must.Succeed(t, err)
	must.Succeed(t, socket.SetReadBuffer(8<<20))
	must.Succeed(t, socket.JoinGroup(groupDestroy))
	counted := &deletedEntries{}
	var listening sync.WaitGroup
	var isOver atomic.Bool
	listening.Go(func() {
		for {
			messages, err := socket.Receive()
			if err != nil {
				if !isOver.Load() {
					t.Errorf("receive destroy events: %v", err)
				}
				return
			}
			for _, message := range messages {
				if message.Header.PID != 0 { // otherwise the entry ended by itself
					counted.count(t, message.Data)
				}
			}
		}
	})
	t.Cleanup(func() {
		isOver.Store(true)
		_ = socket.Close()
		listening.Wait()
	})
	return counted
}

// count counts a destroy event by the state of its connection. message is a struct nfgenmsg and attributes.
func (d *deletedEntries) count(t *testing.T, message []byte) {
	const sizeofHeader, attrStatus, attrProtocolInfo, attrTCP, attrState = 4, 3, 4, 1, 1
	attributes, err := netlink.NewAttributeDecoder(message[sizeofHeader:])
	if err != nil {
		t.Errorf("decode a destroy event: %v", err)
		return
	}
	attributes.ByteOrder = binary.BigEndian
	var status uint32
	var state uint8
	for attributes.Next() {
		switch attributes.Type() {
		case attrStatus:
			status = attributes.Uint32()
		case attrProtocolInfo:
			attributes.Nested(func(info *netlink.AttributeDecoder) error {
				for info.Next() {
					if info.Type() == attrTCP {
						info.Nested(func(tcp *netlink.AttributeDecoder) error {
							for tcp.Next() {
								if tcp.Type() == attrState {
									state = tcp.Uint8()
								}
							}
							return nil
						})
					}
				}
				return nil
			})
		}
	}
	if err := attributes.Err(); err != nil || status == 0 || state == 0 {
		t.Errorf("destroy event has status %#x and state %d: %v", status, state, err)
	}
	switch {
	case status&uint32(conntrack.SeenReply) == 0:
		d.unreplied.Add(1)
	case state == conntrack.TCPTimeWait || state == conntrack.TCPClose:
		d.closed.Add(1)
	default:
		d.open.Add(1)
	}
}
