package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// LossyPath is a machine on the path between two nodes. All packets between them and their pods pass through a program
// that can delay and drop packets, because not every kernel has netem.
type LossyPath struct {
	packets *os.File

	mutex sync.Mutex
	delay time.Duration
	loss  float64
	drops int
}

// AddLossyPath routes the packets between two nodes and between their pods through a LossyPath. It neither delays nor
// drops packets until SetImpairment is called. The fabric's Close ends it.
func (f *Fabric) AddLossyPath(name string, a, b *Node) (*LossyPath, error) {
	machine, err := f.AddNode(name)
	if err != nil {
		return nil, err
	}
	for _, pair := range [][2]*Node{{a, b}, {b, a}} {
		for _, to := range pair[1].specificPrefixes() {
			err = errors.Join(err, pair[0].RouteVia(to, machine.Namespace))
		}
	}
	if err != nil {
		return nil, err
	}
	p := &LossyPath{}
	if err := machine.Do(p.open); err != nil {
		return nil, err
	}
	for _, command := range []string{
		"link set tun0 up",
		"rule add iif eth0 lookup 100", "route add default dev tun0 table 100",
		"-6 rule add iif eth0 lookup 100", "-6 route add default dev tun0 table 100",
	} {
		if output, err := machine.Run(exec.Command("ip", strings.Fields(command)...)); err != nil {
			return nil, errors.Join(fmt.Errorf("ip %s on %s: %w: %s", command, name, err, output), p.packets.Close())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers = append(f.servers, &Server{closers: []io.Closer{p.packets}})
	f.serving.Go(p.forward)
	return p, nil
}

// specificPrefixes returns the addresses of a node and the range of its pods as two halves, so that these routes are more
// specific than the route for the whole range.
func (n *Node) specificPrefixes() []netip.Prefix {
	prefixes := []netip.Prefix{single(n.IPv4), single(n.IPv6)}
	ipv4, ipv6 := n.PodCIDRs()
	for _, pods := range []netip.Prefix{ipv4, ipv6} {
		half := pods.Addr().AsSlice()
		half[pods.Bits()/8] |= 0x80
		upper, _ := netip.AddrFromSlice(half)
		prefixes = append(prefixes, netip.PrefixFrom(pods.Addr(), pods.Bits()+1), netip.PrefixFrom(upper, pods.Bits()+1))
	}
	return prefixes
}

// open creates the device tun0 in the current thread's network namespace. Reads return the packets that are routed to
// tun0; writes inject packets that arrive from it.
func (p *LossyPath) open() error {
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	request, err := unix.NewIfreq("tun0")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create tun0: %w", err), unix.Close(fd))
	}
	p.packets = os.NewFile(uintptr(fd), path)
	return nil
}

// SetImpairment delays every packet from now on, and drops it with the given probability.
func (p *LossyPath) SetImpairment(delay time.Duration, loss float64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.delay, p.loss = delay, loss
}

// Dropped returns the number of dropped packets.
func (p *LossyPath) Dropped() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.drops
}

// forward forwards packets until the device is closed.
func (p *LossyPath) forward() {
	for buffer := make([]byte, 1<<16); ; {
		length, err := p.packets.Read(buffer)
		if err != nil {
			return
		}
		if delay, isDropped := p.nextPacket(); !isDropped {
			packet := bytes.Clone(buffer[:length])
			time.AfterFunc(delay, func() { _, _ = p.packets.Write(packet) })
		}
	}
}

func (p *LossyPath) nextPacket() (delay time.Duration, isDropped bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if isDropped = rand.Float64() < p.loss; isDropped {
		p.drops++
	}
	return p.delay, isDropped
}
