package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	deadNode = "node-b1"
	// Each client connects so often. They dial over IPv4: where a cable is pulled, the kernel tells clients of IPv6 after three
	// seconds that there is no neighbour, and nobody can take that back.
	deathEvery = 50 * time.Millisecond
	// They go on for so many seconds, and where other programs keep the processors busy until a whole second has begun after
	// every proxy knew.
	minSeconds, maxSeconds = 8, 20
	// deathTimeout is how long a client waits for its answer. The kernel dials again after one, three, seven and fifteen
	// seconds, and needs one of these packets after the dial was drawn anew. With six proxies on two processors, which look
	// through one conntrack table for all nodes, it takes up to seven seconds until the node is known and two looks have found the
	// dial unanswered, and longer beside other programs.
	deathTimeout = 30 * time.Second
	// waitedFor is a connection that lost its first packet: the kernel sends the next one after a second.
	waitedFor = 500 * time.Millisecond
	// statusTimeout is how long proxies may take to dial each other once, and to notice that a node is gone or back.
	statusTimeout = time.Minute
)

// second is what became of the connections that began within one second.
type second struct {
	made, waited, failed int
	maxLatency           time.Duration
	why                  error // of a failure
}

// playDeath is the sixth act: a node's cable is pulled while everybody connects. It returns what it showed and what was wrong.
func (s *stage) playDeath(ctx context.Context, p *page) (shown string, wrong []string, err error) {
	p.headline("6. The cable of " + deadNode + " is pulled")
	if err := errors.Join(s.writeServiceWith("", unbounded), s.waitForUnreachable(ctx, 0)); err != nil {
		return "", nil, err
	}
	dead := s.locations[slices.IndexFunc(s.locations, func(p location) bool { return p.node.Name == deadNode })]
	load := loadTopology{clients: slices.DeleteFunc(slices.Clone(s.locations), func(p location) bool { return p == dead }), webs: s.locations}
	if err := load.dialAll(ctx, s.locations); err != nil {
		return "", nil, err
	}
	p.print("  The Service has no annotation now, so each web pod gets a sixth. Nobody tells the proxies that one is gone: Kubernetes takes")
	p.print("  50 seconds to notice, and until then kube-proxy sends a sixth of all new connections into nothing.")
	if err := dead.node.Unplug(); err != nil {
		return "", nil, err
	}
	var unknown error
	known := make(chan struct{})
	go func() {
		unknown = s.waitForUnreachable(ctx, 1)
		close(known)
	}()
	seconds, straight := load.dialOn(ctx, known)
	<-known
	printSeconds(p, seconds)
	total := sumOf(seconds)
	for _, sentence := range deathMistakes(seconds, straight, unknown) {
		wrong = append(wrong, "act 6. "+sentence)
	}
	explained, err := s.explainOn(ctx, load.clients[0])
	if err := errors.Join(err, dead.node.PowerOn()); err != nil {
		return "", wrong, err
	}
	ofIPv4, _, _ := strings.Cut(explained, "\n\n")
	p.quote("proxy explain "+serviceName+"    # on "+load.clients[0].node.Name, ofIPv4)
	plugged := time.Now()
	if err := errors.Join(s.waitForUnreachable(ctx, 0), load.dialAll(ctx, s.locations)); err != nil {
		return "", wrong, err
	}
	p.print("\n  The cable is plugged in again. %s had connections again after %s.", dead.web.Name, short(time.Since(plugged)))
	shown = fmt.Sprintf("A node vanished: of %d new connections %d waited, %.1f s at most, and none failed.",
		total.made, total.waited, total.maxLatency.Seconds())
	return shown, wrong, nil
}

// dialAll has every client connect until all wanted web pods have answered it.
func (c loadTopology) dialAll(ctx context.Context, wanted []location) error {
	errs := make([]error, len(c.clients))
	var requests sync.WaitGroup
	for i, from := range c.clients {
		requests.Go(func() { errs[i] = c.dialUntilAll(ctx, from, wanted) })
	}
	requests.Wait()
	return errors.Join(errs...)
}

// dialOn has every client begin connections at a steady pace, whether or not those before have an answer, until a second has
// begun in which everybody knows. straight are connections to a pod that lives, past the Service and its proxies: where they
// wait it is because of what else runs on the machine.
func (c loadTopology) dialOn(ctx context.Context, known <-chan struct{}) (seconds []second, straight second) {
	seconds = make([]second, maxSeconds)
	var mutex sync.Mutex
	var dialling sync.WaitGroup
	dial := func(from location, to netip.AddrPort, into *second) {
		dialling.Go(func() {
			start := time.Now()
			_, err := from.client.Request("tcp", to, deathTimeout)
			mutex.Lock()
			defer mutex.Unlock()
			into.add(time.Since(start), err)
		})
	}
	tick := time.NewTicker(deathEvery)
	defer tick.Stop()
	at, wasKnown := 0, false // when the second began
	for ; at < maxSeconds && (at < minSeconds || !wasKnown) && ctx.Err() == nil; at++ {
		wasKnown = isClosed(known)
		for began := time.Now(); time.Since(began) < time.Second; <-tick.C {
			for _, from := range c.clients {
				dial(from, frontends[0], &seconds[at])
			}
			from, to := c.clients[0], c.clients[1].web
			dial(from, netip.AddrPortFrom(to.IPv4, targetPort), &straight)
		}
	}
	dialling.Wait()
	return seconds[:at], straight
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

func (s *second) add(took time.Duration, err error) {
	s.made++
	switch {
	case err != nil:
		s.failed, s.why = s.failed+1, err
		return
	case took > waitedFor:
		s.waited++
	}
	s.maxLatency = max(s.maxLatency, took)
}

func sumOf(seconds []second) second {
	var sum second
	for _, s := range seconds {
		sum.made, sum.waited, sum.failed = sum.made+s.made, sum.waited+s.waited, sum.failed+s.failed
		sum.maxLatency, sum.why = max(sum.maxLatency, s.maxLatency), cmp.Or(sum.why, s.why)
	}
	return sum
}

// waitForUnreachable waits until all proxies but that of the dead node know how each other one answers, and so many do not.
func (s *stage) waitForUnreachable(ctx context.Context, unreachable int) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, proxy := range s.proxies {
		for proxy.node.Name != deadNode {
			known, err := proxy.reachability(ctx)
			if err == nil && known.Families["IPv4"].WithBaseline == len(s.locations)-1-unreachable && len(known.Unreachable) == unreachable {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("after %s the proxy on %s should know of %d nodes, of which %d do not answer: it knows %+v: %w",
					statusTimeout, proxy.node.Name, len(s.locations)-1, unreachable, known, errors.Join(ctx.Err(), err))
			}
			time.Sleep(100 * time.Millisecond) // the processors are for the proxies
		}
	}
	return nil
}

// explainOn runs `proxy explain` in the network of a node, where it asks the proxy which nodes do not answer.
func (s *stage) explainOn(ctx context.Context, on location) (string, error) {
	return on.node.Run(exec.CommandContext(ctx, s.program, "explain", serviceName, "--manifests", s.manifests, "--node", on.node.Name))
}

// printSeconds prints a column for each second.
func printSeconds(p *page, seconds []second) {
	lines := []string{"begun in second", "connections", "waited", "failed", "the longest wait"}
	cell := func(count int) string {
		if count == 0 {
			return "·"
		}
		return fmt.Sprint(count)
	}
	for i, s := range seconds {
		longest := "·"
		if s.waited > 0 {
			longest = fmt.Sprintf("%.1f s", s.maxLatency.Seconds())
		}
		for line, text := range []string{fmt.Sprint(i + 1), cell(s.made), cell(s.waited), cell(s.failed), longest} {
			if i == 0 {
				lines[line] = fmt.Sprintf("%-18s", lines[line])
			}
			lines[line] += fmt.Sprintf("%7s", text)
		}
	}
	p.print("\n  %s", p.ink(bold, lines[0]))
	for _, line := range lines[1:] {
		p.print("  %s", line)
	}
	p.print("")
}

// deathMistakes says what went wrong in the sixth act, in sentences; none if all is well. unknown is why not all proxies came
// to know that the node is gone.
func deathMistakes(seconds []second, straight second, unknown error) []string {
	var found []string
	total := sumOf(seconds)
	if unknown != nil {
		found = append(found, unknown.Error())
	}
	if total.failed > 0 {
		found = append(found, fmt.Sprintf("%d of %d connections failed: %v", total.failed, total.made, total.why))
	}
	if total.waited == 0 {
		found = append(found, "no connection waited, so nothing is shown")
	}
	if last := seconds[len(seconds)-1]; last.waited*20 > last.made {
		found = append(found, fmt.Sprintf("%d of %d connections of the last second waited: the node is not avoided", last.waited, last.made))
	}
	if len(found) > 0 && straight.waited+straight.failed > 0 {
		found = append(found, fmt.Sprintf("the machine is busy, and that may be why: of %d connections straight to a pod, past every proxy, "+
			"%d waited, %.1f s at most, and %d failed; play it again when less runs", straight.made, straight.waited,
			straight.maxLatency.Seconds(), straight.failed))
	}
	return found
}
