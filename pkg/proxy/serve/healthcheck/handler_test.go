//go:build linux

package healthcheck

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
)

func synced(addrs ...string) selection.SyncState {
	var state selection.SyncState
	for _, addr := range addrs {
		state.Scope.NodePorts = append(state.Scope.NodePorts, netip.MustParseAddr(addr))
	}
	return state
}

// TestHandlerServesHealthChecks: checks that a sync does not change stay as they were, and the addresses are those
// of node ports.
func TestHandlerServesHealthChecks(t *testing.T) {
	handler, ended := NewHandler(), make(chan struct{})
	servers := New(slog.New(slog.DiscardHandler), func() bool { return true })
	go func() {
		defer close(ended)
		handler.Run(t.Context(), servers, func(failed []model.Finding) {
			if len(failed) > 0 {
				t.Error(failed)
			}
		})
	}()
	port := reserve.OnLoopback(t).Port()
	t.Cleanup(func() { <-ended })
	for _, step := range []struct {
		desc      string
		derived   any
		isApplied bool // applied
		synced    selection.SyncState
		want      int // status; zero if no server listens
	}{
		{"a Service with an endpoint here", selection.HealthCheck{Port: port, Endpoints: counts{model.IPv4: 1}}, true, synced("127.0.0.1"), 200},
		{"an unchanged health check", nil, false, synced("127.0.0.1"), 200},
		{"no address serves node ports", nil, false, synced(), 0},
		{"an address serves node ports again", nil, false, synced("127.0.0.1"), 200},
		{"no endpoint here", selection.HealthCheck{Port: port, Endpoints: counts{model.IPv4: 0}}, true, synced("127.0.0.1"), 503},
		{"the Service is gone", nil, true, synced("127.0.0.1"), 0},
	} {
		if step.isApplied {
			handler.OnApplied(name("shop/web"), step.derived)
		}
		handler.OnSynced(step.synced)
		got := -1
		for deadline := time.Now().Add(10 * time.Second); got != step.want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = statusOf(fmt.Sprintf("http://127.0.0.1:%d/", port))
		}
		if got != step.want {
			t.Fatalf("%s: status %d, want %d", step.desc, got, step.want)
		}
	}
}

func TestUnchangedDecisionUpdatesNoServer(t *testing.T) {
	handler := NewHandler()
	type derived = map[string]any
	for _, step := range []struct {
		desc    string
		derived derived
		synced  selection.SyncState
		isNew   bool
		want    checks
	}{
		{"the first sync, without Services", nil, synced("172.16.0.1"), true, checks{}},
		{"a Service without a check", derived{"a": nil}, synced("172.16.0.1"), false, checks{}},
		{"one with a check", derived{"b": check(1, 1)}, synced("172.16.0.1"), true, checks{name("b"): check(1, 1)}},
		{"the same", derived{"b": check(1, 1)}, synced("172.16.0.1"), false, checks{name("b"): check(1, 1)}},
		{"another port", derived{"b": check(2, 1)}, synced("172.16.0.1"), true, checks{name("b"): check(2, 1)}},
		{"another count", derived{"b": check(2, 0)}, synced("172.16.0.1"), true, checks{name("b"): check(2, 0)}},
		{"another address", nil, synced("172.16.0.2"), true, checks{name("b"): check(2, 0)}},
		{"the check is removed", derived{"b": nil}, synced("172.16.0.2"), true, checks{}},
	} {
		for service, digest := range step.derived {
			handler.OnApplied(name(service), digest)
		}
		handler.OnSynced(step.synced)
		isNew := false
		select {
		case <-handler.changed:
			isNew = true
		default:
		}
		if diff := cmp.Diff(step.want, handler.checks); diff != "" || isNew != step.isNew {
			t.Errorf("%s: notified: %v, checks (-want +got):\n%s", step.desc, isNew, diff)
		}
	}
}

// statusOf sends a request over a new connection; it returns zero if no server listens.
func statusOf(url string) int {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
