package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
)

// response is the kernel's response to a check.
type response struct {
	found []competing.Conflict
	err   error
}

// TestOtherProxiesAreReportedOnce when they appear, when their chains start to come first, and when they disappear,
// however often the kernel is read in between, and also if it cannot be read.
func TestOtherProxiesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs.New(t, "the proxy")
		c := &common{
			options:  &Options{Node: "node-a", Connection: kube.Connection{Server: "http://127.0.0.1:1"}},
			recorder: metrics.NewRecorder(), log: slog.New(slog.NewTextHandler(log, nil)), status: &status.Status{},
		}
		src, err := newSource(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		var kernel atomic.Pointer[response]
		kernel.Store(&response{})
		checks := 0
		o := &otherProxies{
			common: c, reporter: src.reporter,
			checkOnce: func(context.Context) ([]competing.Conflict, error) {
				checks++
				signals := kernel.Load()
				return signals.found, signals.err
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.run(ctx)
		}()
		const (
			warned      = "another service proxy is on this node"
			removed     = "another service proxy was removed from this node"
			checkFailed = "failed to check for other service proxies"
			series      = "\nvicinity_other_service_proxies{proxy=\"kube-proxy-nftables\"} "
		)
		expect := func(when string, value string, words, lines map[string]int) {
			t.Helper()
			time.Sleep(10*otherProxiesInterval + time.Second)
			synctest.Wait()
			for text, want := range lines {
				if got := log.Count(text); got != want {
					t.Errorf("%s: the log has %q %d times, want %d", when, text, got, want)
				}
			}
			page := httptest.NewRecorder()
			o.recorder.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if !strings.Contains(page.Body.String(), series+value+"\n") {
				t.Errorf("%s: /metrics lacks %q", when, series+value)
			}
			live := httptest.NewRecorder()
			o.status.Handler(time.Now).ServeHTTP(live, httptest.NewRequest(http.MethodGet, "/livez", nil))
			for text, want := range words {
				if got := strings.Count(live.Body.String(), text); got != want {
					t.Errorf("%s: /livez has %q %d times, want %d:\n%s", when, text, got, want, live.Body)
				}
			}
		}
		signals := func(text string) map[string]int {
			return map[string]int{"kube-proxy is second": 0, "kube-proxy is first": 0, text: 1}
		}

		expect("alone", "0", map[string]int{"otherServiceProxies": 0}, map[string]int{warned: 0, removed: 0, checkFailed: 0})
		second := competing.Conflict{Proxy: "kube-proxy-nftables", Message: "kube-proxy is second", Remedy: "remove it"}
		first := competing.Conflict{Proxy: "kube-proxy-nftables", Message: "kube-proxy is first", Precedes: true}
		kernel.Store(&response{found: []competing.Conflict{second}})
		expect("another proxy appears", "1", signals("kube-proxy is second"), map[string]int{warned: 1, "remove it": 1, removed: 0})
		kernel.Store(&response{found: []competing.Conflict{first}})
		expect("its chains come first", "1", signals("kube-proxy is first"), map[string]int{warned: 2, removed: 0})
		kernel.Store(&response{err: errors.New("no response")})
		expect("the kernel does not respond", "1", signals("kube-proxy is first"), map[string]int{warned: 2, removed: 0, checkFailed: 1})
		kernel.Store(&response{found: []competing.Conflict{second}})
		expect("our tables are recreated", "1", signals("kube-proxy is second"), map[string]int{warned: 2, removed: 0, checkFailed: 1})
		kernel.Store(&response{})
		expect("it disappears", "0", map[string]int{"otherServiceProxies": 0}, map[string]int{warned: 2, removed: 1, checkFailed: 1})
		if want := 61; checks != want {
			t.Errorf("%d checks in an hour, want %d", checks, want)
		}
		cancel()
		<-ended
	})
}
