package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// evacuation is the fifth act, while the node has the label. Afterwards the state is that of the first act.
var evacuation = act{
	headline:  "5. zone-b is evacuated",
	evacuated: "zone-b",
	changed:   "zone-b",
}

// playEvacuation is the fifth act. It returns the result and the mistakes.
func (s *setup) playEvacuation(ctx context.Context, p *page) (result string, mistakes []string, err error) {
	p.headline(evacuation.headline)
	if err := s.restore(ctx); err != nil {
		return "", nil, err
	}
	p.print("  The web pods are as in act 1, and every client keeps connecting. Both nodes of zone-b get the label")
	p.print("  vicinity.dev/evacuate: \"true\". Their pods keep running, but get no new connections while others can serve.")
	open, err := s.openConnections()
	defer func() { err = errors.Join(err, open.close()) }()
	if err != nil {
		return "", nil, err
	}
	clients := s.startClients(ctx)
	during, explained, err := s.applyEvacuation(ctx, evacuation)
	if err != nil {
		clients.end()
		return "", nil, err
	}
	after := act{headline: evacuation.headline, changed: evacuation.evacuated}
	restored, _, err := s.applyEvacuation(ctx, after)
	made, failures := clients.end()
	moved := open.mistakes()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return "", nil, err
	}

	during.printDuration(p, evacuation, "label was")
	p.print("  Where %d connections from each client went, a third of them over IPv6:\n", connections)
	view := s.table(evacuation, during.rows)
	view.print(p)
	ofIPv4, _, _ := strings.Cut(explained, "\n\n") // the comparison has shown that IPv6 is the same
	p.quote("proxy explain "+serviceName+" --node "+explainedNode, ofIPv4)
	if restored.convergenceErr == nil {
		p.print("\n  The label is removed. All connections of %s stay there again after %s.", after.changed, short(restored.took.all))
	}
	mistakes = append(mistakesOf(evacuation, during, view), mistakesOf(after, restored, s.table(after, restored.rows))...)
	for _, sentence := range append(failures, moved...) {
		mistakes = append(mistakes, "act 5. "+sentence)
	}
	result = fmt.Sprintf("A zone was evacuated and restored: none of %d new connections failed, "+
		"and %d open ones kept their endpoints.", made, len(open))
	return result, mistakes, nil
}

// restore restores the first act's web pods, without a bound, and waits until all proxies have them.
func (s *setup) restore(ctx context.Context) error {
	_, err := s.writeEndpoints(s.locations)
	if err := errors.Join(err, s.writeService(unbounded)); err != nil {
		return err
	}
	first := loadTopology{clients: s.locations, webs: s.locations}
	errs := make([]error, len(s.locations))
	var requests sync.WaitGroup
	for i, from := range s.locations {
		requests.Go(func() { errs[i] = first.dialUntilAll(ctx, from, s.expected(from.zone, "")) })
	}
	requests.Wait()
	return errors.Join(errs...)
}

// applyEvacuation writes the labels of the act, and observes the result.
func (s *setup) applyEvacuation(ctx context.Context, act act) (observed observation, explained string, err error) {
	written, err := s.writeNodes(act.evacuated)
	if err != nil {
		return observation{}, "", err
	}
	observed = s.observe(ctx, act, written)
	explained, err = s.explain(ctx, explainedNode)
	return observed, explained, errors.Join(err, ctx.Err())
}

// busyClients are clients that keep connecting until they are stopped.
type busyClients struct {
	stop       chan struct{}
	connecting sync.WaitGroup

	mu       sync.Mutex
	attempts int
	failures []string
}

// startClients connects from every client, alternating between the families.
func (s *setup) startClients(ctx context.Context) *busyClients {
	b := &busyClients{stop: make(chan struct{})}
	for _, from := range s.locations {
		b.connecting.Go(func() {
			for i := 0; b.shouldContinue(ctx); i++ {
				_, err := connect(from, frontendOf(i), s.locations)
				b.record(from, err)
			}
		})
	}
	return b
}

// shouldContinue waits a moment, to leave CPU time to the proxies, and reports whether the clients should continue.
func (b *busyClients) shouldContinue(ctx context.Context) bool {
	select {
	case <-b.stop:
		return false
	case <-ctx.Done():
		return false
	case <-time.After(2 * time.Millisecond):
		return true
	}
}

func (b *busyClients) record(from location, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts++
	if err != nil && len(b.failures) < failuresWorthTrying {
		b.failures = append(b.failures, fmt.Sprintf("%s: a connection failed during the evacuation: %v", from.node.Name, err))
	}
}

// end stops the clients, and returns the number of attempted connections and, as sentences, the failures.
func (b *busyClients) end() (attempts int, failures []string) {
	close(b.stop)
	b.connecting.Wait()
	return b.attempts, b.failures
}

// openConnection is an open connection and the web pod that responded first.
type openConnection struct {
	*fabric.Connection
	from location
	web  string
}

type openConnections []openConnection

// openConnections opens a connection from every client over each family.
func (s *setup) openConnections() (openConnections, error) {
	var all openConnections
	for _, from := range s.locations {
		for _, to := range frontends {
			opened, err := from.client.Open("tcp", to)
			if err != nil {
				return all, err
			}
			reply, err := opened.Request(connectionTimeout)
			all = append(all, openConnection{opened, from, reply.Pod})
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// mistakes sends another request over each connection, and returns, as sentences, the connections that fail or have
// another server.
func (all openConnections) mistakes() []string {
	var found []string
	for _, c := range all {
		reply, err := c.Request(connectionTimeout)
		if err != nil {
			found = append(found, fmt.Sprintf("%s: a connection that was open before the evacuation failed: %v", c.from.node.Name, err))
		} else if reply.Pod != c.web {
			found = append(found, fmt.Sprintf("%s: a connection that was open before the evacuation moved from %s to %s",
				c.from.node.Name, c.web, reply.Pod))
		}
	}
	return found
}

func (all openConnections) close() error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
