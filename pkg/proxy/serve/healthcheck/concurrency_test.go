//go:build linux

package healthcheck

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func TestRequestDuringSyncGetsACompleteResponseOrNone(t *testing.T) {
	n := newNode(t)
	states := []struct {
		checks checks
		on     selection.Scope
	}{
		{checks{name("shop/web"): check(30000, 1)}, scopeOf("127.0.0.1")},
		{checks{name("shop/web"): check(30000, 0)}, allAddresses},
		{checks{name("shop/api"): check(30000, 2)}, allAddresses},
		{nil, allAddresses},
		{checks{name("shop/api"): check(30000, 2), name("shop/web"): check(30001, 1)}, scopeOf("127.0.0.1", "127.0.0.2")},
		{checks{name("shop/web"): check(30000, 3)}, noAddress},
	}
	possible := []string{bodyOf("shop/web", 1, true), bodyOf("shop/web", 0, true), bodyOf("shop/api", 2, true)}

	var stopped atomic.Bool
	var answered, closed atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for !stopped.Load() {
				got, err := n.requestOnce(t.Context(), "127.0.0.1:30000")
				if err != nil {
					closed.Add(1)
					continue
				}
				answered.Add(1)
				wantsOK := !strings.Contains(got.Body, `"localEndpoints": 0`)
				if !slices.Contains(possible, got.Body) || (got.Status == http.StatusOK) != wantsOK {
					t.Errorf("incomplete response: %+v", got)
				}
			}
		})
	}
	for range 20 {
		for _, state := range states {
			n.sync(state.checks, state.on)
		}
		n.sync(states[0].checks, states[0].on)
		before := answered.Load()
		for attempt := 0; attempt < 10000 && answered.Load() == before; attempt++ {
			n.expectServing("127.0.0.1:30000", "shop/web", 1) // until the other requests got responses, too
		}
	}
	stopped.Store(true)
	clients.Wait()
	if answered.Load() == 0 || closed.Load() == 0 {
		t.Errorf("%d requests succeeded and %d failed, want some of both", answered.Load(), closed.Load())
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	n := newNode(t)
	n.sync(checks{name("shop/web"): {Port: 30000, Endpoints: counts{model.IPv4: 1, model.IPv6: 1}}}, allAddresses)
	if _, err := n.mustDial("127.0.0.1:30000").request("GET", "/", ""); err != nil {
		t.Fatal(err)
	}
	n.mustDial("[::1]:30000") // a connection that sends nothing
	n.servers.Close()
	buffer := make([]byte, 1<<20)
	if stacks := string(buffer[:runtime.Stack(buffer, true)]); strings.Contains(stacks, "httpserve.Serve(") {
		t.Errorf("a server still runs:\n%s", stacks)
	}
}
