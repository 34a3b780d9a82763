//go:build e2e

package suites

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// steady runs clients that keep connecting until they are stopped.
type steady struct {
	stop    chan struct{}
	dialing sync.WaitGroup

	mu          sync.Mutex
	total       results
	controlErrs []error // of requests to clients' control APIs, whose results are unknown
}

// startSteady makes each client dial each target up to 50 times per second, until stopped.
func startSteady(ctx context.Context, clients testPods, targets []target) *steady {
	s := &steady{stop: make(chan struct{})}
	for _, client := range clients {
		for _, to := range targets {
			s.dialing.Go(func() { s.dial(ctx, client, to) })
		}
	}
	return s
}

func (s *steady) dial(ctx context.Context, client testPod, to target) {
	for {
		select {
		case <-s.stop:
			return
		default:
		}
		got, err := client.dial(ctx, to, dialling{count: 20, timeout: successTimeout, interval: 20 * time.Millisecond})
		s.mu.Lock()
		s.total = s.total.plus(got)
		if err != nil {
			s.controlErrs = append(s.controlErrs, err)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// end stops the clients and returns the results of all connections.
func (s *steady) end() (results, []error) {
	close(s.stop)
	s.dialing.Wait()
	return s.total, s.controlErrs
}

// expectNoneLost stops the clients and reports every connection that got no reply.
func (s *steady) expectNoneLost(desc string) results {
	GinkgoHelper()
	total, controlErrs := s.end()
	Expect(controlErrs).To(BeEmpty(), "%s: clients that could not be controlled", desc)
	Expect(total.Errors).To(BeEmpty(), "%s: failed connections: %s", desc, total)
	Expect(total.replies()).To(BeNumerically(">", 0), "%s: connections with a reply", desc)
	return total
}

// held is an open connection on which the client keeps sending.
type held struct {
	client testPod
	id     string
}

// hold opens a connection from each client to each target.
func hold(ctx context.Context, clients testPods, targets []target) []held {
	GinkgoHelper()
	var all []held
	for _, client := range clients {
		for _, to := range targets {
			var created struct {
				ID string `json:"id"`
			}
			Expect(client.request(ctx, "POST", "hold", map[string]string{"address": to.address}, &created)).To(Succeed())
			h := held{client: client, id: created.ID}
			DeferCleanup(func(ctx SpecContext) {
				Expect(client.request(ctx, "DELETE", "hold/"+h.id, nil, nil)).To(Succeed())
			})
			all = append(all, h)
		}
	}
	return all
}

// heldState is the state of a held connection.
type heldState struct {
	Alive  bool   `json:"alive"`
	Server string `json:"server"`
	Echoes int    `json:"echoes"`
}

func (h held) state(ctx context.Context) (heldState, error) {
	var got heldState
	err := h.client.request(ctx, "GET", "hold/"+h.id, nil, &got)
	return got, err
}

// echoes returns the number of echoes that the connection got, and an error if it is closed.
func (h held) echoes(ctx context.Context) (int, error) {
	got, err := h.state(ctx)
	if err != nil {
		return 0, err
	}
	if !got.Alive {
		return got.Echoes, fmt.Errorf("connection %s of %s ended after %d echoes", h.id, h.client, got.Echoes)
	}
	return got.Echoes, nil
}

// expectAlive waits until every connection has received another echo.
func expectAlive(ctx context.Context, desc string, all []held) {
	GinkgoHelper()
	before := make([]int, len(all))
	for i, h := range all {
		var err error
		before[i], err = h.echoes(ctx)
		Expect(err).NotTo(HaveOccurred(), desc)
	}
	for i, h := range all {
		Eventually(func() (int, error) { return h.echoes(ctx) }).WithContext(ctx).Should(BeNumerically(">", before[i]), desc)
	}
}
