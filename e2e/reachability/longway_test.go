package reachability_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// longWay is a machine on the way between two nodes. All packets of IPv4 pass a program there, which holds them up and loses some
// of them: not every kernel has netem.
type longWay struct {
	packets *os.File

	mutex sync.Mutex
	delay time.Duration
	loss  float64
	drops int
}

// takeLongWay has packets between node-1 and another node, and their pods, take the long way, which is as good as any other at
// first.
func (s *town) takeLongWay(number int) *longWay {
	s.t.Helper()
	machine, err := s.network.AddNode(fmt.Sprint("long-way-", number))
	must.Succeed(s.t, err)
	ends := [2]int{0, number}
	for i, end := range ends {
		other := ends[1-i]
		must.Succeed(s.t, s.nodes[end].RouteVia(single(s.nodes[other].IPv4), machine.Namespace))
		must.Succeed(s.t, s.nodes[end].RouteVia(single(s.pods[other].IPv4), machine.Namespace))
	}
	way := &longWay{packets: openTUN(s.t, machine)}
	for _, command := range []string{
		"link set tun0 up", "rule add iif eth0 lookup 100", "route add default dev tun0 table 100",
	} {
		_, err := machine.Run(exec.CommandContext(s.t.Context(), "ip", strings.Fields(command)...))
		must.Succeed(s.t, err)
	}
	var carrying sync.WaitGroup
	carrying.Go(way.carry)
	s.t.Cleanup(func() {
		_ = way.packets.Close()
		carrying.Wait()
	})
	return way
}

// openTUN makes the device tun0 in the network of a machine. What is read from it are packets that are routed there, and what is
// written to it comes from there.
func openTUN(t *testing.T, machine *fabric.Node) *os.File {
	t.Helper()
	const path = "/dev/net/tun"
	var file *os.File
	must.Succeed(t, machine.Do(func() error {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		request, err := unix.NewIfreq("tun0")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return fmt.Errorf("making tun0: %w", err)
		}
		file = os.NewFile(uintptr(fd), path)
		return nil
	}))
	return file
}

// worsen has each packet from now on take so much longer, and lost with a probability.
func (w *longWay) worsen(delay time.Duration, loss float64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.delay, w.loss = delay, loss
}

// lost is how many packets were lost.
func (w *longWay) lost() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.drops
}

// carry hands packets on until the device is closed.
func (w *longWay) carry() {
	for buffer := make([]byte, 1<<16); ; {
		length, err := w.packets.Read(buffer)
		if err != nil {
			return
		}
		if delay, isLost := w.fate(); !isLost {
			packet := bytes.Clone(buffer[:length])
			time.AfterFunc(delay, func() { _, _ = w.packets.Write(packet) })
		}
	}
}

func (w *longWay) fate() (delay time.Duration, isLost bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if isLost = rand.Float64() < w.loss; isLost {
		w.drops++
	}
	return w.delay, isLost
}
