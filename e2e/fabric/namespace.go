package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is the network of one machine or pod: a network namespace that only this process can access.
type Namespace struct {
	// Name is the name of the node, pod or host.
	Name string
	// IPv4 and IPv6 are the addresses at which other machines reach it.
	IPv4, IPv6 netip.Addr

	fabric   *Fabric
	nodeName string
	links    *netlink.Handle
	lastPort atomic.Uint32

	mu     sync.RWMutex // a thread must not enter a namespace that is being closed
	handle netns.NsHandle
}

// Host is a machine outside the cluster.
type Host struct{ *Namespace }

func newNamespace(f *Fabric, name string, ipv4, ipv6 netip.Addr) (*Namespace, error) {
	ns := &Namespace{Name: name, IPv4: ipv4, IPv6: ipv6, fabric: f}
	if err := onThread(ns.unshare, noop); err != nil {
		return nil, fmt.Errorf("create network namespace for %s: %w", name, err)
	}
	if err := errors.Join(ns.writeSysctls(commonSysctls), ns.setUp("lo")); err != nil {
		return nil, errors.Join(err, ns.close())
	}
	return ns, nil
}

// unshare creates the namespace. The thread stays inside until onThread moves it back.
func (n *Namespace) unshare() error {
	handle, err := netns.New()
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("root (CAP_SYS_ADMIN) is needed: %w", err)
	}
	if err != nil {
		return err
	}
	links, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return errors.Join(fmt.Errorf("open netlink socket: %w", err), handle.Close())
	}
	n.handle, n.links = handle, links
	return nil
}

// noop does nothing. It is for a thread that only has to return to its original namespace.
func noop() error { return nil }

// enter moves the thread into the namespace.
func (n *Namespace) enter() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.handle.IsOpen() {
		return errClosed
	}
	if err := netns.Set(n.handle); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

func (n *Namespace) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links.Close()
	return n.handle.Close()
}

// FD returns the namespace's file descriptor, for libraries that open their sockets by one. The fabric owns it.
func (n *Namespace) FD() int { return int(n.handle) }

// Do runs f on a thread inside the namespace. Goroutines that f starts run outside it.
func (n *Namespace) Do(f func() error) error {
	if err := onThread(n.enter, f); err != nil {
		return fmt.Errorf("in the namespace of %s: %w", n.Name, err)
	}
	return nil
}

// Dial connects from inside the namespace, like net.DialTimeout. The address must be a literal: a name would be
// resolved outside the namespace.
func (n *Namespace) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	return n.dial(&net.Dialer{Timeout: timeout}, network, addr)
}

func (n *Namespace) dial(dialer *net.Dialer, network, addr string) (conn net.Conn, err error) {
	err = n.Do(func() (err error) {
		conn, err = dialer.Dial(network, addr)
		return err
	})
	return conn, err
}

// Listen listens inside the namespace, like net.Listen.
func (n *Namespace) Listen(network, addr string) (listener net.Listener, err error) {
	err = n.Do(func() (err error) {
		listener, err = net.Listen(network, addr)
		return err
	})
	return listener, err
}

// ListenPacket receives datagrams inside the namespace, like net.ListenPacket.
func (n *Namespace) ListenPacket(network, addr string) (conn net.PacketConn, err error) {
	err = n.Do(func() (err error) {
		conn, err = net.ListenPacket(network, addr)
		return err
	})
	return conn, err
}

// addrOf returns the namespace's address of the prefix's address family.
func (n *Namespace) addrOf(prefix netip.Prefix) netip.Addr {
	if prefix.Addr().Is4() {
		return n.IPv4
	}
	return n.IPv6
}

var (
	errClosed     = errors.New("fabric is closed")
	errEndedEarly = errors.New("function ended its goroutine instead of returning")
)

// onThread runs f on a locked thread after enter has moved the thread, and moves it back to its original namespace. If
// that fails, the thread ends with its goroutine.
func onThread(enter, f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errEndedEarly // runtime.Goexit, which t.Fatal uses, returns nothing
		defer func() { result <- err }()
		err = runMoved(enter, f)
	}()
	return <-result
}

func runMoved(enter, f func() error) (err error) {
	runtime.LockOSThread()
	original, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer func() {
		restoreErr := restoreNamespace(original)
		if restoreErr == nil {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, restoreErr, original.Close())
	}()
	if err := enter(); err != nil {
		return err
	}
	return f()
}

// restoreNamespace moves the thread to its original namespace. It does nothing if the thread never left it, for lack of
// privilege.
func restoreNamespace(original netns.NsHandle) error {
	current, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer current.Close()
	if current.Equal(original) {
		return nil
	}
	if err := netns.Set(original); err != nil {
		return fmt.Errorf("leave network namespace: %w", err)
	}
	return nil
}
