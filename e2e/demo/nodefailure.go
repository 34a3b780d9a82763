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
	failedNode = "node-b1"
	// dialInterval is the interval between the connections of each client. Clients dial over IPv4: after a cable is
	// unplugged, the kernel fails IPv6 connections after three seconds because the neighbour is unreachable, which proxies
	// cannot prevent.
	dialInterval = 50 * time.Millisecond
	// Clients dial for at least minSeconds. If other programs use the CPUs, they dial for at most maxSeconds, until a
	// whole second has started after every proxy detected the failure.
	minSeconds, maxSeconds = 8, 20
	// dialTimeout is the timeout of a client. The kernel retransmits the SYN after one, three, seven and fifteen seconds,
	// and one of these packets must come after the stale entry was deleted. Six proxies on two CPUs scan one conntrack
	// table for all nodes. It takes up to seven seconds until the failure is detected and two scans have found the
	// connection unreplied, and longer if other programs run.
	dialTimeout = 30 * time.Second
	// A connection that takes longer than retransmitThreshold has lost its first SYN, which the kernel retransmits after a second.
	retransmitThreshold = 500 * time.Millisecond
	// statusTimeout bounds the time until proxies have probed each other once, and until they detect that a node is gone
	// or back.
	statusTimeout = time.Minute
)

// second has the results of the connections that started within one second.
type second struct {
	made, waited, failed int
	maxLatency           time.Duration
	err                  error // of a failure
}

// playNodeFailure is the sixth act: a node's cable is unplugged while all clients connect. It returns the result and the
// mistakes.
func (s *setup) playNodeFailure(ctx context.Context, p *page) (result string, mistakes []string, err error) {
	p.headline("6. The cable of " + failedNode + " is unplugged")
	if err := errors.Join(s.writeServiceWith("", unbounded), s.waitForUnreachable(ctx, 0)); err != nil {
		return "", nil, err
	}
	failed := s.locations[slices.IndexFunc(s.locations, func(p location) bool { return p.node.Name == failedNode })]
	load := loadTopology{clients: slices.DeleteFunc(slices.Clone(s.locations), func(p location) bool { return p == failed }),
		webs: s.locations}
	if err := load.dialAll(ctx, s.locations); err != nil {
		return "", nil, err
	}
	p.print("  The Service has no annotation now, so each web pod gets a sixth. The proxies are not notified of the failure: Kubernetes takes")
	p.print("  50 seconds to detect it, and until then with kube-proxy a sixth of all new connections would fail.")
	if err := failed.node.Unplug(); err != nil {
		return "", nil, err
	}
	var detectErr error
	known := make(chan struct{})
	go func() {
		detectErr = s.waitForUnreachable(ctx, 1)
		close(known)
	}()
	seconds, direct := load.dialContinuously(ctx, known)
	<-known
	printSeconds(p, seconds)
	total := totalOf(seconds)
	for _, sentence := range nodeFailureMistakes(seconds, direct, detectErr) {
		mistakes = append(mistakes, "act 6. "+sentence)
	}
	explained, err := s.explainOn(ctx, load.clients[0])
	if err := errors.Join(err, failed.node.PowerOn()); err != nil {
		return "", mistakes, err
	}
	ofIPv4, _, _ := strings.Cut(explained, "\n\n")
	p.quote("proxy explain "+serviceName+"    # on "+load.clients[0].node.Name, ofIPv4)
	plugged := time.Now()
	if err := errors.Join(s.waitForUnreachable(ctx, 0), load.dialAll(ctx, s.locations)); err != nil {
		return "", mistakes, err
	}
	p.print("\n  The cable is plugged in again. %s had connections again after %s.", failed.web.Name, short(time.Since(plugged)))
	result = fmt.Sprintf("A node failed: of %d new connections %d waited, at most %.1f s, and none failed.",
		total.made, total.waited, total.maxLatency.Seconds())
	return result, mistakes, nil
}

// dialAll connects from every client until all expected web pods have responded to it.
func (t loadTopology) dialAll(ctx context.Context, expected []location) error {
	errs := make([]error, len(t.clients))
	var requests sync.WaitGroup
	for i, from := range t.clients {
		requests.Go(func() { errs[i] = t.dialUntilAll(ctx, from, expected) })
	}
	requests.Wait()
	return errors.Join(errs...)
}

// dialContinuously starts connections from every client at a steady rate, whether or not the earlier ones have a reply, until a
// second has started after known was closed. direct counts connections to a live pod that bypass the Service and its
// proxies: if they wait, other load on the machine is the cause.
func (t loadTopology) dialContinuously(ctx context.Context, known <-chan struct{}) (seconds []second, direct second) {
	seconds = make([]second, maxSeconds)
	var mutex sync.Mutex
	var dialling sync.WaitGroup
	dial := func(from location, to netip.AddrPort, result *second) {
		dialling.Go(func() {
			start := time.Now()
			_, err := from.client.Request("tcp", to, dialTimeout)
			mutex.Lock()
			defer mutex.Unlock()
			result.add(time.Since(start), err)
		})
	}
	tick := time.NewTicker(dialInterval)
	defer tick.Stop()
	i, wasKnown := 0, false // at the start of the second
	for ; i < maxSeconds && (i < minSeconds || !wasKnown) && ctx.Err() == nil; i++ {
		wasKnown = isClosed(known)
		for began := time.Now(); time.Since(began) < time.Second; <-tick.C {
			for _, from := range t.clients {
				dial(from, frontends[0], &seconds[i])
			}
			from, to := t.clients[0], t.clients[1].web
			dial(from, netip.AddrPortFrom(to.IPv4, targetPort), &direct)
		}
	}
	dialling.Wait()
	return seconds[:i], direct
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
		s.failed, s.err = s.failed+1, err
		return
	case took > retransmitThreshold:
		s.waited++
	}
	s.maxLatency = max(s.maxLatency, took)
}

func totalOf(seconds []second) second {
	var sum second
	for _, s := range seconds {
		sum.made, sum.waited, sum.failed = sum.made+s.made, sum.waited+s.waited, sum.failed+s.failed
		sum.maxLatency, sum.err = max(sum.maxLatency, s.maxLatency), cmp.Or(sum.err, s.err)
	}
	return sum
}

// waitForUnreachable waits until each proxy, except that of the failed node, has a baseline or an ejection for all
// other nodes, and has ejected the given number.
func (s *setup) waitForUnreachable(ctx context.Context, unreachable int) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, proxy := range s.proxies {
		for proxy.node.Name != failedNode {
			reachability, err := proxy.reachability(ctx)
			if err == nil && reachability.Families["IPv4"].WithBaseline == len(s.locations)-1-unreachable &&
				len(reachability.Unreachable) == unreachable {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("after %s the proxy on %s should know %d nodes, %d of them unreachable, but reports %+v: %w",
					statusTimeout, proxy.node.Name, len(s.locations)-1, unreachable, reachability, errors.Join(ctx.Err(), err))
			}
			time.Sleep(100 * time.Millisecond) // leaves CPU time to the proxies
		}
	}
	return nil
}

// explainOn runs `proxy explain` in the network of a node, where it gets the unreachable nodes from the proxy.
func (s *setup) explainOn(ctx context.Context, at location) (string, error) {
	return at.node.Run(exec.CommandContext(ctx, s.program, "explain", serviceName, "--manifests", s.manifests, "--node", at.node.Name))
}

// printSeconds prints a column for each second.
func printSeconds(p *page, seconds []second) {
	lines := []string{"started in second", "connections", "waited", "failed", "longest wait"}
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

// nodeFailureMistakes returns the mistakes of the sixth act as sentences; none if everything is as expected. unknown is the
// reason why some proxy did not detect the failure.
func nodeFailureMistakes(seconds []second, direct second, unknown error) []string {
	var found []string
	total := totalOf(seconds)
	if unknown != nil {
		found = append(found, unknown.Error())
	}
	if total.failed > 0 {
		found = append(found, fmt.Sprintf("%d of %d connections failed: %v", total.failed, total.made, total.err))
	}
	if total.waited == 0 {
		found = append(found, "no connection waited, so the demo does not show a failure")
	}
	if last := seconds[len(seconds)-1]; last.waited*20 > last.made {
		found = append(found, fmt.Sprintf("%d of %d connections of the last second waited: the node is not demoted", last.waited, last.made))
	}
	if len(found) > 0 && direct.waited+direct.failed > 0 {
		found = append(found, fmt.Sprintf("the machine is busy, which may be the cause: of %d connections directly to a pod, without a proxy, "+
			"%d waited, at most %.1f s, and %d failed; run the demo again on an idle machine", direct.made, direct.waited,
			direct.maxLatency.Seconds(), direct.failed))
	}
	return found
}
